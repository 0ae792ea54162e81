import stat
import threading

import pytest

from flodl.core.errors import LaunchError
from flodl.distributed.launch.payload import read_payload, write_payload


def test_objects_come_back_by_name_lambdas_too(tmp_path):
    file = tmp_path / "payload"
    factor = 3
    write_payload(file, {"step": lambda x: x * factor, "config": {"a": 1}})
    found = read_payload(file)
    assert found["step"](2) == 6
    assert found["config"] == {"a": 1}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_object_that_cannot_be_pickled_is_named_and_leaves_no_file(tmp_path):
    file = tmp_path / "payload"
    with pytest.raises(LaunchError, match="train_step cannot be pickled") as error:
        write_payload(file, {"config": 1, "train_step": threading.Lock()})
    assert "build what cannot be pickled inside it" in error.value.hint
    assert not file.exists()


def test_without_cloudpickle_the_error_says_what_would_help(tmp_path, monkeypatch):
    monkeypatch.setattr("flodl.distributed.launch.payload._cloudpickle", lambda: None)
    with pytest.raises(LaunchError) as error:
        write_payload(tmp_path / "payload", {"step": lambda x: x})
    assert "cloudpickle" in error.value.hint
    write_payload(tmp_path / "payload", {"step": len})
    assert read_payload(tmp_path / "payload") == {"step": len}
