import json
import sys

import pytest

from flodl_cli.errors import FdlError
from flodl_cli.host import packages
from flodl_cli.host.packages import Pin, package_client

REPORT = {
    "install": [
        {
            "metadata": {"name": "nvidia-nccl", "version": "2.30.7"},
            "download_info": {"archive_info": {"hashes": {"sha256": "aa"}}},
        },
        {"metadata": {"name": "local", "version": "1"}, "download_info": {"dir_info": {}}},
    ]
}


@pytest.fixture
def only_fakes(fake_program, monkeypatch, tmp_path):
    fake_program("true", "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path}/fakes:/usr/bin:/bin")
    found = packages.shutil.which
    monkeypatch.setattr(packages.shutil, "which", lambda n: found(n, path=f"{tmp_path}/fakes"))


@pytest.mark.usefixtures("only_fakes")
def test_pip_tells_versions_and_digests_by_its_report(fake_program, tmp_path):
    fake_program(
        "pip",
        f"""echo "$@" >> {tmp_path}/calls
while [ $# -gt 0 ]; do [ "$1" = --report ] && report=$2; shift; done
echo '{json.dumps(REPORT)}' > "$report" """,
    )
    pins = package_client().resolve("torch==2.13.0", "cu130", tmp_path)
    assert pins == [Pin("nvidia-nccl", "2.30.7", ("sha256:aa",)), Pin("local", "1", ())]
    call = (tmp_path / "calls").read_text()
    assert "--dry-run" in call
    assert "/whl/cu130 torch==2.13.0" in call


@pytest.mark.usefixtures("only_fakes")
def test_pip_installs_pins_with_their_digests_only(fake_program, tmp_path):
    fake_program("pip3", f'echo "$@" > {tmp_path}/calls')
    package_client().install([Pin("a", "1", ("sha256:aa",))], tmp_path / "t", "cpu", tmp_path)
    assert (tmp_path / "requirements.txt").read_text() == "a==1 --hash=sha256:aa\n"
    assert "--no-deps --require-hashes" in (tmp_path / "calls").read_text()


@pytest.mark.usefixtures("only_fakes")
def test_uv_is_preferred(fake_program, tmp_path):
    fake_program("pip", "exit 9")
    fake_program("uv", "echo 'a==1 --hash=sha256:aa'; echo '# a comment==1'; echo '-e x'")
    assert package_client().resolve("a", "cpu", tmp_path) == [Pin("a", "1", ("sha256:aa",))]


@pytest.mark.usefixtures("only_fakes")
def test_neither_client_is_an_error_with_a_way_out(fake_program, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(fake_program("bare-python", "exit 1")))
    with pytest.raises(FdlError, match="neither uv nor pip"):
        package_client()
