import errno
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ddp_bench.errors import RunFolderError
from ddp_bench.run_folder import RunFolder

STAMP = "20260102-030405"


@pytest.fixture
def folder(tmp_path):
    made = RunFolder(
        tmp_path / "runs" / "mlp" / "solo-0", lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    )
    made.check()
    return made


def fill(folder: RunFolder, text: str, names=("model.fdl", "training.log", "result.json")):
    with folder.staging() as staged:
        for name in names:
            (staged / name).write_text(text)


def content(folder: RunFolder) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.path.iterdir()}


def test_check_makes_the_folder_and_leaves_nothing_in_it(folder):
    assert content(folder) == {}


def test_folder_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match=r"(?s)file/solo-0: it cannot.*--output") as e:
        RunFolder(tmp_path / "file" / "solo-0").check()
    assert str(tmp_path) in str(e.value)


def test_missing_space_is_refused_with_both_numbers(folder):
    with pytest.raises(RunFolderError, match=r"need 16\.0 PB, .* free"):
        folder.require_space(16 << 50)
    folder.require_space(1)


def test_files_arrive_when_the_block_ends(folder):
    with folder.staging() as staged:
        (staged / "result.json").write_text("new")
        assert not (folder.path / "result.json").exists()
    assert content(folder) == {"result.json": "new"}


def test_files_of_an_earlier_run_are_set_aside_together(folder):
    fill(folder, "old")
    fill(folder, "new", names=("training.log", "result.json"))
    assert content(folder) == {
        "training.log": "new",
        "result.json": "new",
        f"model_{STAMP}.fdl": "old",
        f"training_{STAMP}.log": "old",
        f"result_{STAMP}.json": "old",
    }


def test_two_runs_within_a_second_keep_both_sets(folder):
    for text in ("first", "second", "third"):
        fill(folder, text)
    assert content(folder)[f"result_{STAMP}.json"] == "first"
    assert content(folder)[f"result_{STAMP}-2.json"] == "second"
    assert content(folder)["result.json"] == "third"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError("x"), OSError(errno.ENOSPC, "x")])
def test_failed_block_leaves_the_folder_as_it_was(folder, error):
    fill(folder, "old")
    with pytest.raises(BaseException), folder.staging() as staged:  # noqa: B017, PT011
        (staged / "model.fdl").write_text("half")
        raise error
    assert content(folder) == {"model.fdl": "old", "training.log": "old", "result.json": "old"}


@pytest.mark.parametrize("failing", range(6))
def test_move_that_fails_half_way_is_taken_back(folder, monkeypatch, failing):
    fill(folder, "old")
    rename, calls = Path.rename, []

    def rename_once_broken(path, target):
        calls.append(path)
        if len(calls) == failing + 1:
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", rename_once_broken)
    with pytest.raises(RunFolderError, match="Input/output error"):
        fill(folder, "new")
    assert content(folder) == {"model.fdl": "old", "training.log": "old", "result.json": "old"}
