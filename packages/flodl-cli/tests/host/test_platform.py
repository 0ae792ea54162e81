import pytest

from flodl_cli.errors import UnsupportedPlatformError
from flodl_cli.host import platform as module
from flodl_cli.host.platform import this_platform


@pytest.mark.parametrize(
    ("system", "machine", "expected"),
    [
        ("linux", "x86_64", "linux-x86_64"),
        ("linux", "aarch64", "linux-aarch64"),
        ("darwin", "arm64", "macos-arm64"),
        ("win32", "AMD64", "windows-x86_64"),
        ("win32", "ARM64", "windows-arm64"),
    ],
)
def test_systems_and_processors_have_one_name(monkeypatch, system, machine, expected):
    monkeypatch.setattr(module.sys, "platform", system)
    monkeypatch.setattr(module.platform, "machine", lambda: machine)
    assert this_platform() == expected
    assert this_platform().system == expected.partition("-")[0]


def test_platform_that_pytorch_does_not_know_lists_those_it_does(monkeypatch):
    monkeypatch.setattr(module.sys, "platform", "sunos5")
    monkeypatch.setattr(module.platform, "machine", lambda: "sparc")
    with pytest.raises(UnsupportedPlatformError, match="sunos5-sparc; platforms: linux-x86_64"):
        this_platform()
