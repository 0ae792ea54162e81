import errno
import re

import pytest

from flodl_cli.errors import LibtorchError
from flodl_cli.libtorch.install import staged


def test_folder_replaces_the_old_one_as_a_whole(tmp_path):
    target = tmp_path / "v"
    target.mkdir()
    (target / "old").write_text("")
    with staged(target) as staging:
        assert (target / "old").exists()
        (staging / "new").write_text("")
    assert [path.name for path in target.iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["v"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_failure_leaves_the_old_one_and_no_staging(tmp_path, error):
    target = tmp_path / "v"
    target.mkdir()
    (target / "old").write_text("")
    with pytest.raises(error), staged(target) as staging:
        (staging / "new").write_text("")
        raise error
    assert [path.name for path in target.iterdir()] == ["old"]
    assert [path.name for path in tmp_path.iterdir()] == ["v"]


def test_folder_that_cannot_be_written_is_one_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LibtorchError, match="cannot be written"), staged(tmp_path / "file" / "v"):
        pass


def test_full_disk_inside_is_one_error_and_leaves_the_old_one(tmp_path):
    target = tmp_path / "v"
    target.mkdir()
    (target / "old").write_text("")
    full = OSError(errno.ENOSPC, "No space left on device")
    told = f"{target} cannot be made: No space left on device"
    with pytest.raises(LibtorchError, match=re.escape(told)) as failed, staged(target):
        raise full
    assert "make room" in failed.value.hint
    assert [path.name for path in target.iterdir()] == ["old"]
    assert [path.name for path in tmp_path.iterdir()] == ["v"]


def test_failed_swap_puts_the_old_one_back(tmp_path, monkeypatch):
    from pathlib import Path

    target = tmp_path / "v"
    target.mkdir()
    (target / "old").write_text("")
    rename = Path.rename

    def fail(self, goal):
        if goal == target and ".staging-v" in self.name:
            raise OSError(13, "Permission denied")
        return rename(self, goal)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(LibtorchError, match="cannot be put in place"), staged(target):
        pass
    assert [path.name for path in target.iterdir()] == ["old"]
