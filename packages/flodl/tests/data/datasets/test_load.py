from __future__ import annotations

import hashlib
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from flodl.core.errors import (
    ChecksumError,
    ConfigError,
    DatasetFormatError,
    DatasetUnavailableError,
)
from flodl.data.datasets import Cifar10, Mnist, Shakespeare, load, write_cifar10, write_idx
from flodl.data.datasets.catalog import CATALOG


def publish(name: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Declare the files in ``folder`` to be the published ones of a data set."""
    files = []
    for file in CATALOG[name]:
        data = (folder / file.name).read_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        files.append(replace(file, size=len(data), sha256=sha256))
    monkeypatch.setitem(CATALOG, name, tuple(files))


@pytest.fixture
def small_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache root with an MNIST of 4 training and 2 test images, published as such."""
    folder = tmp_path / "mnist"
    folder.mkdir()
    for stem, count in (("train", 4), ("t10k", 2)):
        images = torch.arange(count * 4, dtype=torch.uint8).view(count, 2, 2)
        write_idx(folder / f"{stem}-images-idx3-ubyte.gz", images)
        write_idx(folder / f"{stem}-labels-idx1-ubyte.gz", torch.arange(count, dtype=torch.uint8))
    publish("mnist", folder, monkeypatch)
    return tmp_path


def test_published_files_are_loaded_from_the_root(small_mnist: Path) -> None:
    train, test = load("mnist", root=small_mnist), load("mnist", split="test", root=small_mnist)
    assert isinstance(train, Mnist)
    assert (len(train), len(test)) == (4, 2)
    raw = load("mnist", root=small_mnist, normalize="none")
    assert raw.images.flatten().tolist() == list(range(16))


def test_the_root_comes_from_argument_then_variable_then_cache(
    small_mnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(DatasetUnavailableError, match=str(tmp_path / "cache/flodl/datasets/mnist")):
        load("mnist", offline=True)
    monkeypatch.setenv("FLODL_DATA_PATH", str(small_mnist))
    assert len(load("mnist")) == 4
    with pytest.raises(DatasetUnavailableError, match="elsewhere/mnist"):
        load("mnist", root=tmp_path / "elsewhere", offline=True)


def test_without_any_setting_the_home_cache_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(DatasetUnavailableError, match=f"{tmp_path}/.cache/flodl/datasets/mnist"):
        load("mnist", offline=True)


def test_missing_files_are_listed_with_sizes_addresses_and_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(DatasetUnavailableError) as caught:
        load("mnist", root=tmp_path, offline=True)
    message = str(caught.value)
    assert f"mnist: offline, and not in {tmp_path}/mnist, which lacks" in message
    assert "train-images-idx3-ubyte.gz (9912422 bytes) from https://storage" in message
    assert "train-labels-idx1-ubyte.gz (28881 bytes)" in message
    assert "t10k" not in message
    assert "offline=False" in message
    assert 'source="mini"' in message


def test_only_the_missing_file_is_listed(small_mnist: Path) -> None:
    (small_mnist / "mnist" / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DatasetUnavailableError) as caught:
        load("mnist", root=small_mnist, offline=True)
    assert "train-images" not in str(caught.value)


def test_a_file_with_other_bytes_is_a_checksum_error(small_mnist: Path) -> None:
    path = small_mnist / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ChecksumError) as caught:
        load("mnist", root=small_mnist, offline=True)
    expected = CATALOG["mnist"][0].sha256
    assert str(path) in str(caught.value)
    assert f"expected {expected}" in str(caught.value)
    assert caught.value.hint == "remove the file and fetch it again"


def test_a_file_that_cannot_be_read_is_unavailable(
    small_mnist: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "read_bytes", broken)
    with pytest.raises(DatasetUnavailableError, match="cannot be read: Input/output error"):
        load("mnist", root=small_mnist)


def test_cifar10_is_read_from_unpacked_batches_of_the_right_size(tmp_path: Path) -> None:
    folder = tmp_path / "cifar10"
    folder.mkdir()
    images = torch.zeros(10_000, 3, 32, 32, dtype=torch.uint8)
    write_cifar10(folder / "test_batch.bin", images, torch.full((10_000,), 4))
    data = load("cifar10", split="test", root=tmp_path, normalize="none")
    assert isinstance(data, Cifar10)
    assert data.labels.unique().tolist() == [4]
    (folder / "test_batch.bin").write_bytes(b"\x01" * 3073)
    with pytest.raises(DatasetFormatError, match="has 3073 bytes: expected 30730000"):
        load("cifar10", split="test", root=tmp_path)
    with pytest.raises(DatasetUnavailableError, match="unpacked: data_batch_1.bin"):
        load("cifar10", root=tmp_path, offline=True)


def test_a_damaged_cifar10_archive_is_a_checksum_error(tmp_path: Path) -> None:
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "cifar-10-binary.tar.gz").write_bytes(b"nothing")
    with pytest.raises(ChecksumError, match="7 bytes with SHA-256"):
        load("cifar10", root=tmp_path, offline=True)


def test_shakespeare_is_cut_into_ninety_and_ten_percent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "shakespeare"
    folder.mkdir()
    (folder / "input.txt").write_text("abcdefghij" * 50 + "z")
    publish("shakespeare", folder, monkeypatch)
    train = load("shakespeare", root=tmp_path, seq_len=5)
    test = load("shakespeare", root=tmp_path, seq_len=5, split="test")
    assert isinstance(train, Shakespeare)
    assert (len(train), len(test), train.vocab_size) == (90, 10, 11)
    short = load("shakespeare", root=tmp_path, seq_len=5, max_chars=101)
    assert (len(short), short.vocab_size) == (18, 10)
    overlapping = load("shakespeare", root=tmp_path, seq_len=5, stride=1)
    assert overlapping.stride == 1


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("mnits", {}, "load\\('mnits'\\): no such data set; there are mnist, cifar10, shakespeare"),
        ("mnist", {"split": "valid"}, "split='valid'"),
        ("mnist", {"source": "tiny"}, 'source=\'tiny\': expected "real" or "mini"'),
        ("mnist", {"seq_len": 4}, "has no option 'seq_len'; it has normalize"),
        ("shakespeare", {}, "needs seq_len"),
        ("shakespeare", {"seq_len": 4, "normalize": "unit"}, "has no option 'normalize'"),
        ("shakespeare", {"seq_len": 4, "max_chars": 0, "source": "mini"}, "max_chars=0"),
        ("mnist", {"source": "mini", "root": "somewhere"}, "mini sets have no folder"),
    ],
)
def test_unusable_arguments_are_refused(name: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load(name, **options)


def test_the_variable_chooses_mini_and_says_so_once(
    small_mnist: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FLODL_DATA_SOURCE", "mini")
    with caplog.at_level(logging.WARNING, "flodl"):
        assert len(load("mnist", root=small_mnist)) == 4000
        assert len(load("mnist", split="test")) == 1000
    assert [record.getMessage() for record in caplog.records] == [
        "FLODL_DATA_SOURCE=mini: the small embedded data sets are used"
    ]


def test_an_argument_beats_the_variable(small_mnist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLODL_DATA_SOURCE", "mini")
    assert len(load("mnist", source="real", root=small_mnist)) == 4


def test_a_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLODL_DATA_SOURCE", "small")
    with pytest.raises(ConfigError, match="FLODL_DATA_SOURCE='small'"):
        load("mnist")
