"""``export``: a model as the reference writes it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from flodl_hf.commands.command import DONE, MisuseError, command, show


def add_to(commands: Any) -> None:
    """Add ``export``."""
    parser = command(
        commands, "export", "write a model as a directory that transformers loads", _export
    )
    parser.add_argument("--hub", metavar="ID_OR_DIR", help="repository, or a model's directory")
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="of save_checkpoint (.fdl)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="what is written")
    parser.add_argument(
        "--head",
        choices=("auto", "base", "seqcls", "tokcls", "qa", "mlm"),
        help="with --hub: which head; by the config's architectures if left out",
    )
    parser.add_argument("--revision", metavar="REF", help="with --hub: branch, tag or commit")
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="with --checkpoint: its config; <stem>.config.json beside it if left out",
    )
    parser.add_argument(
        "--preserve-source-config",
        action="store_true",
        help="with --checkpoint: also write its config as it is, as config.source.json",
    )
    parser.add_argument("--force", action="store_true", help="replace a model that is there")


def _export(args: argparse.Namespace) -> int:
    if (args.hub is None) == (args.checkpoint is None):
        raise MisuseError("export takes --hub or --checkpoint, one of them")
    if args.checkpoint is not None and (args.head or args.revision):
        raise MisuseError("--head and --revision go with --hub")
    if args.hub is not None and (args.config or args.preserve_source_config):
        raise MisuseError("--config and --preserve-source-config go with --checkpoint")
    from flodl_hf.export import export_checkpoint, export_source, summary

    if args.hub is not None:
        exported = export_source(
            args.hub, args.out, head=args.head or "auto", revision=args.revision, force=args.force
        )
    else:
        exported = export_checkpoint(
            args.checkpoint,
            args.out,
            config=args.config,
            force=args.force,
            preserve_source_config=args.preserve_source_config,
        )
    lines = [f"{exported.folder}: {exported.head}: {', '.join(exported.files)}", *exported.notes]
    show(args, summary(exported), lines)
    return DONE
