"""``convert``: pickled tensors to safetensors."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from flodl_hf.commands.command import DONE, command, show


def add_to(commands: Any) -> None:
    """Add ``convert``."""
    parser = command(
        commands, "convert", "write the tensors of a pickled file as safetensors", _convert
    )
    parser.add_argument(
        "source", metavar="REPO_OR_DIR_OR_FILE", help="with pytorch_model.bin, or that file"
    )
    parser.add_argument("--revision", metavar="REF", help="branch, tag or commit of a repository")
    parser.add_argument("--subfolder", metavar="DIR", help="folder in the repository or directory")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where to write; beside the source, or into the cache, if left out",
    )
    parser.add_argument("--force", action="store_true", help="convert again")


def _convert(args: argparse.Namespace) -> int:
    from flodl_hf.heads.files import find_pickle
    from flodl_hf.hub.fetch import HubOptions, converted_folder, locate
    from flodl_hf.weights.convert import convert_pickle

    path = Path(args.source)
    if path.is_file():
        config = path.with_name("config.json")
        target = convert_pickle(
            path,
            args.out or path.parent,
            config=config if config.is_file() else None,
            force=args.force,
        )
    else:
        files = locate(args.source, HubOptions(revision=args.revision, subfolder=args.subfolder))
        config = files.require("config.json")
        pickle = find_pickle(files)
        origin = {"source": files.title}
        out = args.out or config.parent
        if files.repo_id is not None and files.revision is not None:
            origin["revision"] = files.revision
            own = converted_folder(files.repo_id, files.revision, files.subfolder)
            out = args.out or own
        target = convert_pickle(pickle, out, config=config, origin=origin, force=args.force)
    show(args, {"file": str(target)}, [str(target)])
    return DONE
