import stat

import pytest

from flodl.core.errors import LaunchError
from flodl.distributed.launch import run_folder
from flodl.distributed.launch.results import ResultShelf
from flodl.distributed.launch.run_folder import RunFolder, RunRecord, known_runs, new_run

RECORD = RunRecord(
    run="r",
    nonce="n",
    address="127.0.0.1:1",
    token="secret",
    ordinal=0,
    controller_pid=1,
    host_pid=2,
)


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_what_attaching_needs_is_read_by_this_user_only():
    folder = RunFolder.default("r")
    folder.write_record(RECORD)
    assert RunFolder.default("r").read_record() == RECORD
    assert known_runs() == ["r"]
    for path, mode in ((folder.path / "run.json", 0o600), (folder.path.parent, 0o700)):
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_run_that_is_over_cannot_be_attached_to():
    folder = RunFolder.default("r")
    folder.write_record(RECORD)
    folder.forget()
    with pytest.raises(LaunchError, match="run 'r' cannot be attached to"):
        folder.read_record()
    folder.remove()
    assert not folder.path.exists()


def test_a_folder_that_others_can_write_to_is_refused():
    run_folder.runs_folder().chmod(0o777)
    with pytest.raises(LaunchError, match="only this user"):
        RunFolder.default("r")


def test_a_file_in_its_place_is_refused(tmp_path):
    folder = run_folder.runs_folder()
    folder.rmdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    folder.symlink_to(elsewhere)
    with pytest.raises(LaunchError, match="only this user"):
        RunFolder.default("r")


def test_the_controllers_last_lines_are_found():
    folder = RunFolder.default("r")
    assert folder.controller_tail() == ""
    folder.controller_log.write_text("\n".join(map(str, range(100))))
    assert folder.controller_tail(2) == "98\n99"


def test_runs_have_names_of_their_own():
    assert len({new_run() for _ in range(50)}) == 50


def test_results_of_earlier_calls_come_back_in_a_later_process():
    shelf = ResultShelf()
    assert shelf.folder is None
    shelf.put(0, {"loss": [1.0]})
    shelf.put(1, "second")
    later = ResultShelf(shelf.folder)
    assert (later.get(0), later.get(1)) == ({"loss": [1.0]}, "second")
    with pytest.raises(LaunchError, match="run 2 of this program left no result"):
        later.get(2)
    with pytest.raises(LaunchError, match="left no result"):
        ResultShelf().get(0)
