from flodl_cli.host.system import is_wsl, this_system, tool_version


def test_machine_is_read_from_its_files(tmp_path, fake_program):
    fake_program("docker", 'echo "Docker version 29.0.1, build abc"')
    fake_program("uv", "exit 1")
    for name, text in (
        ("proc/cpuinfo", "processor\t: 0\nmodel name\t: Fast CPU @ 3GHz\n"),
        ("proc/meminfo", "MemTotal:       16777216 kB\n"),
        ("etc/os-release", 'NAME="X"\nPRETTY_NAME="Some Linux 7"\n'),
        ("proc/version", "Linux 5.15.0-microsoft-standard-WSL2"),
    ):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    system = this_system(tmp_path)
    assert (system.cpu, system.ram_gb) == ("Fast CPU @ 3GHz", 16.0)
    assert (system.os, system.wsl) == ("Some Linux 7", True)
    assert (system.docker, system.uv) == ("29.0.1", None)


def test_machine_that_tells_nothing_is_still_described(tmp_path):
    system = this_system(tmp_path)
    assert system.ram_gb is None
    assert system.threads >= 1
    assert not is_wsl(tmp_path)


def test_tool_that_is_not_there_has_no_version(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tool_version("docker") is None
