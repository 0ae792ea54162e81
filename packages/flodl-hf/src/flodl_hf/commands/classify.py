"""``classify``: scores texts."""

from __future__ import annotations

import argparse
from typing import Any

from flodl_hf.commands.command import DONE, MisuseError, command, positive, show

DEFAULT_CLASSIFIER = "cardiffnlp/twitter-roberta-base-sentiment-latest"
SAMPLES = ("I love this framework!", "It works.", "This is the worst day of my life.")


def add_to(commands: Any) -> None:
    """Add ``classify``."""
    parser = command(commands, "classify", "score texts with a sequence classifier", _classify)
    parser.add_argument(
        "source",
        nargs="?",
        default=DEFAULT_CLASSIFIER,
        metavar="ID_OR_DIR",
        help=f"repository or directory; {DEFAULT_CLASSIFIER} if left out",
    )
    parser.add_argument(
        "texts", nargs="*", metavar="TEXT", help="what to score; three samples if left out"
    )
    parser.add_argument("--device", default="cpu", help="such as cuda; cpu if left out")
    parser.add_argument(
        "--dtype",
        choices=("float32", "float16", "bfloat16"),
        help="cast to it; that of the file if left out",
    )
    parser.add_argument(
        "--top-k", type=positive, default=3, metavar="K", help="labels to show; 3 if left out"
    )


def _classify(args: argparse.Namespace) -> int:
    import torch

    from flodl_hf.auto import AutoModelForSequenceClassification

    try:
        torch.device(args.device)
    except RuntimeError as error:
        raise MisuseError(f"--device {args.device}: expected such as cpu or cuda") from error
    dtype = getattr(torch, args.dtype) if args.dtype else None
    head = AutoModelForSequenceClassification.from_pretrained(
        args.source, device=args.device, dtype=dtype
    )
    texts = args.texts or list(SAMPLES)
    scored = [scores[: args.top_k] for scores in head.predict(texts)]
    value = [
        {"text": text, "scores": [{"label": name, "score": score} for name, score in scores]}
        for text, scores in zip(texts, scored, strict=True)
    ]
    lines = [
        f"{text}\n  " + "  ".join(f"{name} {score:.3f}" for name, score in scores)
        for text, scores in zip(texts, scored, strict=True)
    ]
    show(args, value, lines)
    return DONE
