from flodl_cli.host import driver
from flodl_cli.host.driver import nvidia_driver


def test_version_is_asked_of_the_tool(fake_program):
    fake_program("nvidia-smi", "printf '580.65.06\\n580.65.06\\n'")
    assert nvidia_driver() == "580.65.06"


def test_tool_that_fails_or_is_not_there_tells_nothing(fake_program, monkeypatch, tmp_path):
    fake_program("nvidia-smi", "echo broken; exit 9")
    assert nvidia_driver() is None
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(driver, "_WSL_TOOL", str(tmp_path / "none"))
    assert nvidia_driver() is None
