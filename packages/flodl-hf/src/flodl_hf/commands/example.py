"""``example``: small programs to read and to run, one for each family and each thing it does."""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flodl_hf.commands.command import DONE, MisuseError, command, show

if TYPE_CHECKING:
    from torch import Tensor

    from flodl_hf.heads.masked import MaskedHead
    from flodl_hf.heads.question import QuestionHead
    from flodl_hf.heads.sequence import SequenceHead
    from flodl_hf.heads.token import TokenHead

_TEXTS = ("I love this framework!", "The queue at the counter took all morning.")
_PLACES = ("Ada Lovelace worked with Charles Babbage in London.",)
_QUESTION = "Where does the fox live?"
_CONTEXT = "The quick fox lives in a forest near Paris and sleeps all day."
_GAP = "The capital of France is {mask}."
_TASKS = {"embed": "base", "classify": "seqcls", "ner": "tokcls", "qa": "qa", "fill-mask": "mlm"}
_AUTO = "auto-classify"
_FINETUNE = "distilbert-finetune"

_SST2 = "distilbert/distilbert-base-uncased-finetuned-sst-2-english"
_SST2_LABELS = {0: "NEGATIVE", 1: "POSITIVE"}
_REVIEWS = (
    ("a joy from the first scene to the last", 1),
    ("clumsy, loud and far too long", 0),
    ("the two leads are a delight to watch", 1),
    ("I looked at my watch after ten minutes", 0),
    ("warm, funny and beautifully shot", 1),
    ("a story that goes nowhere, slowly", 0),
    ("one of the best films of the year", 1),
    ("the jokes fall flat and the plot makes no sense", 0),
    ("it surprised me and it moved me", 1),
    ("a waste of a good cast", 0),
)
_STEPS = 5


def names() -> list[str]:
    """Return the name of every example."""
    from flodl_hf.verify.cells import all_cells

    families = dict.fromkeys(cell.family for cell in all_cells())
    return [_AUTO, *(f"{family}-{task}" for family in families for task in _TASKS), _FINETUNE]


def add_to(commands: Any) -> None:
    """Add ``example``."""
    parser = command(commands, "example", "run a small example", _example)
    parser.add_argument("name", metavar="NAME", help="such as bert-ner; list shows all")
    parser.add_argument("--source", metavar="ID_OR_DIR", help="another checkpoint than usual")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(_FINETUNE),
        metavar="DIR",
        help=f"where {_FINETUNE} saves; {_FINETUNE} if left out",
    )


def _example(args: argparse.Namespace) -> int:
    if args.name == "list":
        show(args, names(), names())
        return DONE
    if args.name not in names():
        raise MisuseError(f"no example {args.name!r}; there are {', '.join(names())}")
    if args.name == _FINETUNE:
        value, lines = _finetune(args.source or _SST2, args.out)
    else:
        family, _, task = args.name.partition("-") if args.name == _AUTO else _split(args.name)
        source = args.source or _repo("roberta" if args.name == _AUTO else family, _TASKS[task])
        value, lines = _RUN[task](source)
    show(args, value, lines)
    return DONE


def _split(name: str) -> tuple[str, str, str]:
    task = next(task for task in _TASKS if name.endswith(f"-{task}"))
    return name.removesuffix(f"-{task}"), "-", task


def _repo(family: str, head: str) -> str:
    from flodl_hf.verify.cells import all_cells

    return next(c.repo for c in all_cells() if (c.family, c.head) == (family, head))


def _embed(source: str) -> tuple[object, list[str]]:
    """How alike texts are, by the mean of their tokens' states."""
    import torch

    from flodl_hf import AutoModel, HfTokenizer

    model = AutoModel.from_pretrained(source)
    enc = HfTokenizer.from_pretrained(source).encode([*_TEXTS, "This library makes me happy."])
    given: dict[str, Tensor] = {"input_ids": enc.input_ids, "attention_mask": enc.attention_mask}
    with torch.no_grad():
        states = model(**{name: given.get(name) for name in model.input_names})
    weights = enc.attention_mask[..., None].to(states.dtype)
    vectors = torch.nn.functional.normalize((states * weights).sum(1) / weights.sum(1), dim=-1)
    alike = (vectors @ vectors.T).tolist()
    lines = ["  ".join(f"{value:6.3f}" for value in row) for row in alike]
    return alike, [f"{model.label or 'model'}: {tuple(states.shape)}", *lines]


def _classify(source: str) -> tuple[object, list[str]]:
    from flodl_hf import AutoModelForSequenceClassification

    head: SequenceHead = AutoModelForSequenceClassification.from_pretrained(source)
    scored = head.predict(list(_TEXTS))
    lines = [
        f"{text}\n  " + "  ".join(f"{label} {score:.3f}" for label, score in scores[:3])
        for text, scores in zip(_TEXTS, scored, strict=True)
    ]
    return [dict(scores) for scores in scored], lines


def _tag(source: str) -> tuple[object, list[str]]:
    from flodl_hf import AutoModelForTokenClassification

    head: TokenHead = AutoModelForTokenClassification.from_pretrained(source)
    tokens = head.predict(list(_PLACES))[0]
    found = [(token.token, token.label, token.score) for token in tokens if token.label != "O"]
    return found, [f"{token:<16}{label:<12}{score:.3f}" for token, label, score in found]


def _answer(source: str) -> tuple[object, list[str]]:
    from flodl_hf import AutoModelForQuestionAnswering

    head: QuestionHead = AutoModelForQuestionAnswering.from_pretrained(source)
    answer = head.answer(_QUESTION, _CONTEXT)
    place = {"start_char": answer.start_char, "end_char": answer.end_char}
    value = {"text": answer.text, "score": answer.score, **place}
    return value, [_QUESTION, _CONTEXT, f"-> {answer.text!r} ({answer.score:.3f})"]


def _fill(source: str) -> tuple[object, list[str]]:
    from flodl_hf import AutoModelForMaskedLM

    head: MaskedHead = AutoModelForMaskedLM.from_pretrained(source)
    text = _GAP.format(mask=head.mask_token)
    found = head.fill_mask(text)
    return found, [text, *(f"  {word:<16}{score:.3f}" for word, score in found)]


def _finetune(source: str, out: Path) -> tuple[object, list[str]]:
    """Take five steps on ten film reviews, score them, and save what came of it."""
    import torch

    from flodl import Trainer
    from flodl.optim import AdamW
    from flodl_hf import AutoModelForSequenceClassification, HfTokenizer
    from flodl_hf.data import TextDataset

    tokenizer = HfTokenizer.from_pretrained(source)
    built = []

    def build(device: torch.device) -> Any:
        built.append(
            AutoModelForSequenceClassification.from_pretrained(
                source, device=device, dtype=torch.float32, new_head=True, id2label=_SST2_LABELS
            )
        )
        return built[-1]

    handle = (
        Trainer.builder(
            build,
            lambda parameters: AdamW(parameters, lr=5e-5),
            lambda head, batch: head.compute_loss(batch, batch["labels"]),
        )
        .dataset(TextDataset(_REVIEWS, tokenizer))
        .batch_size(len(_REVIEWS))  # one step an epoch
        .num_epochs(_STEPS)
        .max_grad_norm(1.0)
        .run()
    )
    head = built[-1]
    handle.join().load_into(head)
    losses = [metrics.avg_loss for metrics in handle.metrics()]
    loss, right = _evaluated(head)
    out.mkdir(parents=True, exist_ok=True)
    head.graph.save_checkpoint(out / "model.fdl")
    tokenizer.save(out / "tokenizer.json")
    value = {
        "losses": losses,
        "loss": loss,
        "right": right,
        "of": len(_REVIEWS),
        "checkpoint": str(out / "model.fdl"),
    }
    told = f"evaluated: loss {loss:.4f}, {right} of {len(_REVIEWS)} reviews told apart"
    return value, [*_curve(losses), told, "saved; now try", *_next_commands(out)]


def _evaluated(head: SequenceHead) -> tuple[float, int]:
    """Return the loss without dropout, and how many reviews are judged as they should be."""
    scored = [dict(scores) for scores in head.predict([text for text, _ in _REVIEWS])]
    wanted = [_SST2_LABELS[label] for _, label in _REVIEWS]
    likely = [scores[label] for scores, label in zip(scored, wanted, strict=True)]
    loss = -math.fsum(math.log(max(score, 1e-12)) for score in likely) / len(likely)
    best = [max(scores, key=lambda label: scores[label]) for scores in scored]
    return loss, sum(a == b for a, b in zip(best, wanted, strict=True))


def _next_commands(out: Path) -> list[str]:
    checkpoint, export = shlex.quote(str(out / "model.fdl")), shlex.quote(str(out / "export"))
    return [
        f"  fdl flodl-hf export --checkpoint {checkpoint} --out {export}",
        f"  fdl flodl-hf verify-export {export} --no-hub-source",
    ]


def _curve(losses: list[float]) -> Iterator[str]:
    return (f"step {step + 1}: loss {loss:.4f}" for step, loss in enumerate(losses))


_RUN: dict[str, Callable[[str], tuple[object, list[str]]]] = {
    "embed": _embed,
    "classify": _classify,
    "ner": _tag,
    "qa": _answer,
    "fill-mask": _fill,
}
