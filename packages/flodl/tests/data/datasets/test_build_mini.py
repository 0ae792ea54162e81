"""The tool that rebuilds the embedded sets, loaded from its file."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

TOOL = Path(__file__).parents[3] / "tools" / "build_mini.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_mini", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_train_and_test_patches_share_no_column(tool: ModuleType) -> None:
    for width in (451, 512, 600, 1411):
        train, test = tool.columns(width, "train"), tool.columns(width, "test")
        assert train[0] == 0
        assert train[1] == test[0]
        assert test[1] == width
        assert test[1] - test[0] >= max(tool.PATCH_SIDES)


def test_patches_stay_inside_their_columns(tool: ModuleType) -> None:
    column = np.broadcast_to(np.arange(256, dtype=np.uint8)[None, :, None], (300, 256, 3))
    for split in ("train", "test"):
        records = np.frombuffer(
            tool.patches([column], 60, tool.random.Random(1), split), dtype=np.uint8
        ).reshape(60, 3073)
        first, end = tool.columns(256, split)
        assert first <= records[:, 1:].min()
        assert records[:, 1:].max() < end


def test_flat_patches_are_drawn_again(tool: ModuleType) -> None:
    picture = np.zeros((64, 256, 3), dtype=np.uint8)
    picture[:, 128:] = np.arange(128, dtype=np.uint8)[None, :, None]
    for seed in range(20):
        patch = tool.cut(picture, (0, 256), 32, tool.random.Random(seed))
        assert patch.max() - patch.min() >= tool.MIN_CONTRAST


def test_a_patch_of_full_size_is_kept_and_a_larger_one_averaged(tool: ModuleType) -> None:
    patch = np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)
    assert np.array_equal(tool.shrink(patch[:32, :32]), patch[:32, :32])
    wide = patch.astype(np.float64)
    mean = (wide[::2, ::2] + wide[1::2, ::2] + wide[::2, 1::2] + wide[1::2, 1::2]) / 4
    assert np.array_equal(tool.shrink(patch), np.floor(mean + 0.5).astype(np.uint8))


def test_a_patch_of_48_is_sampled_between_pixels(tool: ModuleType) -> None:
    ramp = np.broadcast_to(np.arange(0, 192, 4, dtype=np.uint8)[None, :, None], (48, 48, 3))
    # sample i lies at 1.5 i + 0.25 pixels, and the ramp rises by 4 a pixel
    assert tool.shrink(ramp)[0, :, 0].tolist() == [6 * i + 1 for i in range(32)]


def test_differing_and_missing_files_are_found_and_only_they_are_written(
    tool: ModuleType, tmp_path: Path
) -> None:
    files = {"a/one.gz": b"one", "a/two.txt": b"two"}
    assert tool.write(files, tmp_path) == ["a/one.gz", "a/two.txt"]
    assert tool.differing(files, tmp_path) == []
    assert tool.write({**files, "a/two.txt": b"2"}, tmp_path) == ["a/two.txt"]
    assert tool.differing(files, tmp_path) == ["a/two.txt"]
    assert (tmp_path / "SHA256SUMS").read_text().count("  a/") == 2


@pytest.mark.live
@pytest.mark.skipif(
    not (os.environ.get("UV") or shutil.which("uv")), reason="needs uv to fetch the wheels"
)
def test_the_embedded_files_are_what_the_pinned_wheels_give() -> None:
    uv = os.environ.get("UV") or shutil.which("uv")
    done = subprocess.run(
        [str(uv), "run", "--script", str(TOOL), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 files are the same" in done.stdout
