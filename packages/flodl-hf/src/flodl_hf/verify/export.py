"""Is an exported directory what the reference would have written?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from flodl_hf.auto import BACKBONES, AutoConfig, AutoModel
from flodl_hf.config.base import HfConfig
from flodl_hf.errors import TokenizerError, VerifyError
from flodl_hf.export import HEADS, head_of
from flodl_hf.tokenizer.tokenizer import HfTokenizer
from flodl_hf.verify.oracle import Head, library, load_oracle, outputs_of

PROMPT = "The quick brown fox jumps over the lazy dog."


@dataclass(kw_only=True)
class VerifyReport:
    """What was checked of one directory.

    Attributes:
        checks: Name of each check, and what it found; empty for passed.
        skipped: Name of each check that could not be made, and why.
        difference: Largest difference between our outputs and the reference's.
    """

    folder: str
    head: str
    checks: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    difference: float | None = None

    @property
    def passed(self) -> bool:
        """Whether no check found anything."""
        return not any(self.checks.values())


def verify_export(
    folder: str | os.PathLike[str],
    *,
    source: str | os.PathLike[str] | None = None,
    use_source: bool = True,
    prompt: str = PROMPT,
    tolerance: float = 1e-5,
) -> VerifyReport:
    """Check a directory against the reference, and against the model it was made from.

    Args:
        folder: The directory.
        source: What it was exported from; what the config says when left out.
        use_source: Whether to compare with the source at all.
        prompt: Text to compare outputs for.
        tolerance: Largest difference between our outputs and the reference's, relative to the
            largest output if that is above 1.

    Raises:
        MissingExtraError: The reference is not installed.
        HfError: The directory holds no model.
    """
    library()
    path = Path(folder)
    config = AutoConfig.from_pretrained(path)
    head = head_of(config.architectures[0] if config.architectures else None)
    if head is None:
        raise VerifyError(f"{path}: architectures is {list(config.architectures)}, no head here")
    report = VerifyReport(folder=str(path), head=head)
    kind = cast("Head", head)
    oracle, missing, unexpected = load_oracle(path, kind)
    # A backbone may have been saved without the pooler that the reference always builds.
    if kind == "base":
        missing = {name for name in missing if not name.startswith("pooler.")}
    report.checks["keys"] = _listed("missing", missing) + _listed("unexpected", unexpected)
    batch = _batch(path, config, prompt)
    _compare_ours(report, path, kind, oracle, batch, tolerance)
    _compare_tokenizers(report, path, prompt)
    if use_source:
        _compare_source(report, source, config, kind, oracle, batch)
    return report


def _compare_ours(
    report: VerifyReport,
    path: Path,
    head: Head,
    oracle: Any,
    batch: Mapping[str, Tensor],
    tolerance: float,
) -> None:
    expected = outputs_of(oracle, head, batch)
    found = our_outputs(path, head, batch)
    problems = []
    report.difference = 0.0
    for name, value in found.items():
        gate = tolerance * max(1.0, expected[name].abs().max().item())
        difference = (value - expected[name]).abs().max().item()
        report.difference = max(report.difference, difference)
        if not difference <= gate:
            problems.append(f"{name} differs by {difference:.2e}, the gate is {gate:.2e}")
    report.checks["equal to the reference"] = "; ".join(problems)


def our_outputs(path: Path, head: Head, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what we compute for a directory, in float32, by the names of ``outputs_of``."""
    if head == "base":
        graph = AutoModel.from_pretrained(path, with_pooler=None, dtype=torch.float32)
        with torch.no_grad():
            graph(**{name: batch.get(name) for name in graph.input_names})
        tags = [tag for tag in ("hidden", "pooler") if tag in graph.tag_names]
        found = {tag: graph.tagged(tag) for tag in tags}
        return {tag: value for tag, value in found.items() if value is not None}
    family = AutoConfig.from_pretrained(path).model_type
    model = HEADS[head].classes[family].from_pretrained(path, tokenizer=None, dtype=torch.float32)
    with torch.no_grad():
        return {"logits": model(**batch)}


def _compare_tokenizers(report: VerifyReport, path: Path, prompt: str) -> None:
    texts = [prompt, "", "caf\u00e9 \U0001f600 \u4f60\u597d", f"{prompt} {prompt}"]
    ours = _tokenizer(path)
    if ours is None:
        report.skipped["tokenizer"] = "the directory has no fast tokenizer"
        return
    theirs = library().AutoTokenizer.from_pretrained(path)
    found = [ours.encode([text]).input_ids[0].tolist() for text in texts]
    expected = [theirs(text)["input_ids"] for text in texts]
    wrong = [text for text, a, b in zip(texts, found, expected, strict=True) if a != b]
    report.checks["tokenizer"] = f"other ids for {wrong[0]!r}" if wrong else ""


def _compare_source(
    report: VerifyReport,
    source: str | os.PathLike[str] | None,
    config: HfConfig,
    head: Head,
    oracle: Any,
    batch: Mapping[str, Tensor],
) -> None:
    stamped = config.extra.get("flodl_source_repo") or config.extra.get("_name_or_path")
    origin = source or stamped
    if not origin:
        report.skipped["equal to the source"] = "the config does not say what it was made from"
        return
    original, _, _ = load_oracle(origin, head)
    ours, theirs = outputs_of(oracle, head, batch), outputs_of(original, head, batch)
    differing = [name for name in ours.keys() & theirs.keys() if not _same(ours, theirs, name)]
    if head == "base" and not _has_pooler(config, report.folder):
        differing = [name for name in differing if name != "pooler"]
    report.checks["equal to the source"] = (
        f"{', '.join(differing)} of {origin} are not the same numbers" if differing else ""
    )


def _same(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], name: str) -> bool:
    return torch.equal(ours[name], theirs[name])


def _has_pooler(config: HfConfig, folder: str) -> bool:
    graph = AutoModel.from_pretrained(folder, with_pooler=None)
    return BACKBONES[config.model_type].spec.pooler_key is not None and "pooler" in graph.tag_names


def _batch(path: Path, config: HfConfig, prompt: str) -> dict[str, Tensor]:
    """Return a padded batch: of the prompt if there is a tokenizer, else of counted ids."""
    tokenizer = _tokenizer(path)
    if tokenizer is not None:
        enc = tokenizer.encode([prompt, " ".join(prompt.split()[:3]) or prompt])
        return {"input_ids": enc.input_ids, "attention_mask": enc.attention_mask}
    sizes = config.sizes()
    first = min(sizes.pad + 2, sizes.vocab - 1)
    ids = torch.arange(24).reshape(2, 12) % (sizes.vocab - first) + first
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    return {"input_ids": ids.masked_fill(mask == 0, sizes.pad), "attention_mask": mask}


def _tokenizer(path: Path) -> HfTokenizer | None:
    try:
        return HfTokenizer.from_pretrained(path)
    except TokenizerError:
        return None


def _listed(what: str, names: set[str]) -> str:
    return f"{len(names)} {what}: {', '.join(sorted(names)[:5])} " if names else ""
