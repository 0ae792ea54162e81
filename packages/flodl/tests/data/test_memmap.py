from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from flodl.core.errors import ConfigError, DatasetFormatError, DatasetUnavailableError
from flodl.data import DataLoader, MemmapDataSet, TokenWindows
from flodl.data.streaming import FetchSource


@pytest.fixture
def arrays(tmp_path: Path) -> dict[str, Path]:
    np.save(tmp_path / "x.npy", np.arange(24, dtype=np.float32).reshape(6, 4))
    np.save(tmp_path / "y.npy", np.arange(6))
    return {"x": tmp_path / "x.npy", "y": tmp_path / "y.npy"}


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.bin"
    np.arange(100, 121, dtype=np.uint16).tofile(path)
    return path


def test_rows_of_the_files_are_the_samples(arrays: dict[str, Path]) -> None:
    data = MemmapDataSet(arrays)
    assert (len(data), data.names) == (6, ("x", "y"))
    batch = data.get_batch([5, 0])
    assert batch["x"].tolist() == [[20, 21, 22, 23], [0, 1, 2, 3]]
    assert data[3]["y"].item() == 3
    with pytest.raises(IndexError, match="index 6 is outside"):
        data.get_batch([6])


def test_batches_never_alias_the_file(arrays: dict[str, Path]) -> None:
    data = MemmapDataSet(arrays)
    data.get_batch([0, 1])["x"].zero_()
    assert data[1]["x"].tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize("options", [{"streaming": True}, {"resident": True}])
def test_a_loader_gives_the_same_streamed_and_resident(
    arrays: dict[str, Path], options: Any
) -> None:
    loader = DataLoader(MemmapDataSet(arrays), batch_size=2, **options)
    assert loader.is_resident == ("resident" in options)
    rows = [(b["x"][:, 0].tolist(), b["y"].tolist()) for b in loader]
    assert sorted(y for _, ys in rows for y in ys) == list(range(6))
    assert all(x == [4.0 * y for y in ys] for x, ys in rows)


def test_what_travels_to_another_process_is_the_path(arrays: dict[str, Path], tokens: Path) -> None:
    for data in (MemmapDataSet(arrays), TokenWindows(tokens, 4, "uint16")):
        data.get_batch([0])
        sent = pickle.dumps(data)
        assert len(sent) < 1000
        again = pickle.loads(sent)
        assert all(
            torch.equal(a, b)
            for a, b in zip(
                again.get_batch([2]).values(), data.get_batch([2]).values(), strict=True
            )
        )


def test_batches_are_written_into_the_memory_that_is_given(
    arrays: dict[str, Path], tokens: Path
) -> None:
    for data in (MemmapDataSet(arrays), TokenWindows(tokens, 4, "uint16")):
        made: list[torch.Tensor] = []

        def empty(shape: Any, dtype: torch.dtype, made: list[torch.Tensor] = made) -> torch.Tensor:
            made.append(torch.empty(shape, dtype=dtype))
            return made[-1]

        batch = FetchSource(data).gather(torch.tensor([2, 0]), empty)
        assert [part.data_ptr() for part in batch] == [part.data_ptr() for part in made]
        expected = data.get_batch([2, 0]).values()
        assert all(torch.equal(a, b) for a, b in zip(batch, expected, strict=True))


def test_arrays_of_the_other_byte_order_are_read(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(6, dtype=">f4").reshape(3, 2))
    np.save(tmp_path / "t.npy", np.arange(9, dtype=">i4"))
    assert MemmapDataSet({"x": tmp_path / "x.npy"}).get_batch([2, 1])["x"].tolist() == [
        [4, 5],
        [2, 3],
    ]
    assert TokenWindows(tmp_path / "t.npy", 4)[1]["target"].tolist() == [5, 6, 7, 8]


def test_windows_have_the_next_token_as_target(tokens: Path) -> None:
    data = TokenWindows(tokens, 5, np.uint16)
    assert len(data) == 4
    batch = data.get_batch(torch.tensor([3, 0]))
    assert batch["input"].tolist() == [[115, 116, 117, 118, 119], [100, 101, 102, 103, 104]]
    assert batch["target"].tolist() == [[116, 117, 118, 119, 120], [101, 102, 103, 104, 105]]
    assert batch["input"].dtype == torch.int64
    assert data[1]["input"].tolist() == [105, 106, 107, 108, 109]


@pytest.mark.parametrize(
    ("stride", "count", "last"), [(1, 16, 115), (3, 6, 115), (5, 4, 115), (7, 3, 114)]
)
def test_the_last_window_still_has_its_target(
    tokens: Path, stride: int, count: int, last: int
) -> None:
    data = TokenWindows(tokens, 5, "uint16", stride=stride)
    assert len(data) == count
    assert data[count - 1]["input"][0].item() == last


def test_npy_files_of_tokens_need_no_dtype(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.arange(9, dtype=np.int32))
    assert TokenWindows(tmp_path / "t.npy", 4)[1]["target"].tolist() == [5, 6, 7, 8]


@pytest.mark.parametrize(
    ("content", "dtype", "says"),
    [
        (b"12345", "uint16", "has 5 bytes: expected a multiple of 2"),
        (b"", "uint16", "has 0 bytes"),
        (b"1234", None, r"no .npy file"),
        (b"12345678", "uint16", "has 4 tokens: windows of 4 need 5"),
        (b"\x93NUMPY\x01", None, "not a sound .npy file"),
        (b"1234567890123456", "float32", "expected one row of whole numbers"),
    ],
)
def test_files_that_do_not_fit_are_refused(
    content: bytes, dtype: Any, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(DatasetFormatError, match=says):
        TokenWindows(path, 4, dtype)


def test_arrays_of_objects_are_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "o.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DatasetFormatError, match="not a sound .npy file"):
        MemmapDataSet({"o": tmp_path / "o.npy"})


def test_other_dtypes_row_counts_and_missing_files_are_named(
    arrays: dict[str, Path], tmp_path: Path
) -> None:
    np.save(tmp_path / "short.npy", np.arange(5))
    with pytest.raises(DatasetFormatError, match="short.npy: has 5 rows, .*x.npy has 6"):
        MemmapDataSet({**arrays, "z": tmp_path / "short.npy"})
    np.save(tmp_path / "text.npy", np.array(["a"] * 6))
    with pytest.raises(DatasetFormatError, match="holds <U1: expected numbers"):
        MemmapDataSet({"t": tmp_path / "text.npy"})
    with pytest.raises(DatasetFormatError, match="holds float32: expected int32"):
        TokenWindows(arrays["x"], 4, "int32")
    with pytest.raises(DatasetUnavailableError, match="gone.npy: cannot be opened"):
        MemmapDataSet({"x": tmp_path / "gone.npy"})
    with pytest.raises(ConfigError, match="of no files"):
        MemmapDataSet({})
