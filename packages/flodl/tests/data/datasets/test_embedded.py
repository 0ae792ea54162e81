from __future__ import annotations

import shutil
import zipfile
from importlib import resources
from pathlib import Path

import pytest

from flodl.core.errors import ChecksumError, DatasetUnavailableError
from flodl.data.datasets import load
from flodl.data.datasets.embedded import EmbeddedFiles

IMAGES = "train-images-idx3-ubyte.gz"


@pytest.fixture
def mini(tmp_path: Path) -> Path:
    """A copy of the embedded files, free to be damaged."""
    folder = tmp_path / "mini"
    shutil.copytree(Path(str(resources.files("flodl.data.datasets"))) / "mini", folder)
    return folder


def test_sound_files_are_read(mini: Path) -> None:
    (data,) = EmbeddedFiles("mnist", mini).read(IMAGES)
    assert data == (mini / "mnist" / IMAGES).read_bytes()


@pytest.mark.parametrize("length", [0, 1, 1000, -1])
def test_a_truncated_file_names_itself_what_was_expected_and_what_to_do(
    mini: Path, length: int
) -> None:
    path = mini / "mnist" / IMAGES
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ChecksumError) as caught:
        EmbeddedFiles("mnist", mini).read(IMAGES)
    message = str(caught.value)
    assert str(path) in message
    assert "expected " in message
    assert message.endswith("hint: the installation is damaged: reinstall flodl")


def test_a_flipped_bit_is_seen(mini: Path) -> None:
    path = mini / "shakespeare" / "input.txt"
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    with pytest.raises(ChecksumError, match=r"input\.txt: 131072 bytes with SHA-256"):
        EmbeddedFiles("shakespeare", mini).read("input.txt")


@pytest.mark.parametrize("name", ["mnist/" + IMAGES, "SHA256SUMS"])
def test_a_missing_file_is_unavailable_with_the_same_advice(mini: Path, name: str) -> None:
    (mini / name).unlink()
    with pytest.raises(DatasetUnavailableError, match="cannot be read.*\n.*reinstall flodl"):
        EmbeddedFiles("mnist", mini).read(IMAGES)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"one two three\n"])
def test_a_damaged_list_of_checksums_is_seen(mini: Path, content: bytes) -> None:
    (mini / "SHA256SUMS").write_bytes(content)
    with pytest.raises(ChecksumError, match=f"SHA256SUMS: no checksum for mnist/{IMAGES}"):
        EmbeddedFiles("mnist", mini).read(IMAGES)


def test_files_are_found_inside_a_zipped_package(mini: Path, tmp_path: Path) -> None:
    packed = tmp_path / "package.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for path in mini.rglob("*"):
            archive.write(path, path.relative_to(tmp_path))
        folder = zipfile.Path(archive, "mini/")
        (data,) = EmbeddedFiles("mnist", folder).read(IMAGES)
    assert data == (mini / "mnist" / IMAGES).read_bytes()


@pytest.mark.parametrize("name", ["mnist", "cifar10", "shakespeare"])
def test_a_damaged_installation_is_one_clear_error_from_load(
    name: str, mini: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (mini / name).iterdir():
        path.write_bytes(b"damaged")
    monkeypatch.setattr(resources, "files", lambda package: mini.parent)
    options = {"seq_len": 8} if name == "shakespeare" else {}
    with pytest.raises(ChecksumError, match="reinstall flodl"):
        load(name, source="mini", **options)  # type: ignore[call-overload]
