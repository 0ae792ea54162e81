"""./fdl brings a checkout to life and then becomes its fdl."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[4] / "fdl"


def test_first_start_syncs_and_passes_words_and_exit_code_on(checkout):
    checkout.add_uv()
    result = checkout.run("test", "--", "a b", "$x", FAKE_EXIT="7")
    assert result.returncode == 7
    assert [line for line in result.stdout.splitlines() if line.startswith("word")] == [
        "word: test",
        "word: --",
        "word: a b",
        "word: $x",
    ]
    assert result.stderr.splitlines() == [
        "fdl: setting up the workspace (about 5 GB, a minute on a fast line)",
        "fdl: flodl-sys 0.1.0: pure build; why: no C++ compiler",
    ]
    (call,) = checkout.calls("sync")
    assert f"into={checkout.root}/.venv" in call
    assert "certs=1" in call


def test_second_start_does_nothing_but_become_fdl(checkout):
    checkout.add_uv()
    checkout.run()
    result = checkout.run("--help")
    assert result.stderr == ""
    assert len(checkout.calls("sync")) == 1


@pytest.mark.parametrize(
    "name",
    [
        "pyproject.toml",
        "packages/flodl-sys/pyproject.toml",
        "packages/flodl-sys/CMakeLists.txt",
        "packages/flodl-sys/cpp/average.cpp",
        "packages/flodl-sys/cpp/new.cpp",
        "packages/flodl-sys/backend/build.py",
        "packages/flodl-new/pyproject.toml",
        "ddp-bench/pyproject.toml",
        "uv.lock",
    ],
)
def test_change_of_what_the_sync_depends_on_syncs_again(checkout, name):
    checkout.add_uv()
    checkout.run()
    checkout.write(name, "changed\n")
    result = checkout.run()
    assert "fdl: updating the workspace" in result.stderr
    assert len(checkout.calls("sync")) == 2


def test_source_edit_of_a_python_file_does_not_sync(checkout):
    checkout.add_uv()
    checkout.run()
    checkout.write("packages/flodl-sys/src/flodl_sys/gpu.py", "x = 1\n")
    assert checkout.run().stderr == ""


def test_lost_environment_is_made_again(checkout):
    checkout.add_uv()
    checkout.run()
    shutil.rmtree(checkout.root / ".venv")
    assert "setting up" in checkout.run().stderr
    assert (checkout.root / ".venv/bin/fdl").exists()


def test_moved_checkout_is_set_up_anew(checkout):
    checkout.add_uv()
    checkout.run()
    (checkout.root / ".venv/old").touch()
    moved = checkout.root.with_name("moved")
    checkout.root.rename(moved)
    checkout.root = moved
    result = checkout.run()
    assert "was set up in another place" in result.stderr
    assert not (moved / ".venv/old").exists()
    assert checkout.run().stderr == ""


def test_failed_sync_shows_its_output_and_is_tried_again(checkout):
    checkout.add_uv()
    checkout.flag("uv-fails")
    result = checkout.run("test")
    assert result.returncode == 1
    assert result.stdout == ""
    assert "no such host" in result.stderr
    assert "error: uv sync failed with exit code 2" in result.stderr
    assert "hint: " in result.stderr
    (checkout.state / "uv-fails").unlink()
    assert checkout.run("test").returncode == 0


def test_failed_update_does_not_run_the_old_environment(checkout):
    checkout.add_uv()
    checkout.run()
    checkout.flag("uv-fails")
    checkout.write("pyproject.toml", "changed")
    assert checkout.run("test").returncode == 1
    assert checkout.run("test").returncode == 1


def test_works_from_anywhere_and_through_symbolic_links(checkout, tmp_path):
    checkout.add_uv()
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    (elsewhere / "first").symlink_to(checkout.root / "fdl")
    (elsewhere / "second").symlink_to("first")
    result = checkout.run("x", cwd=elsewhere, script=Path("second"))
    assert f"here: {checkout.root}\n" in result.stdout
    inside = checkout.root / "packages"
    assert f"here: {inside}\n" in checkout.run("x", cwd=inside).stdout


def test_children_find_the_environment_and_the_uv_that_was_used(checkout):
    uv = checkout.add_uv(folder=checkout.home / ".local/bin")
    result = checkout.run(PYTHONDONTWRITEBYTECODE="1")
    expected = f"path: {checkout.root}/.venv/bin:{checkout.root}/.fdl/bin:{checkout.bin}"
    assert expected in result.stdout
    assert (checkout.root / ".fdl/bin/uv").resolve() == uv
    assert "bytecode: unset" in result.stdout


def test_start_from_within_a_child_keeps_the_link_to_uv(checkout):
    uv = checkout.add_uv()
    checkout.run()
    checkout.write("pyproject.toml", "changed")
    inner = f"{checkout.root}/.venv/bin:{checkout.root}/.fdl/bin:{checkout.tools}"
    assert checkout.run(PATH=inner).returncode == 0
    assert (checkout.root / ".fdl/bin/uv").resolve() == uv


def test_home_may_be_unset_or_empty(checkout):
    checkout.add_uv()
    env = checkout.environment()
    del env["HOME"]
    assert checkout.run("x", env=env).returncode == 0
    checkout.write("pyproject.toml", "changed")
    assert checkout.run("x", HOME="").returncode == 0


def test_certificates_setting_of_the_user_is_kept(checkout):
    checkout.add_uv()
    checkout.run(UV_SYSTEM_CERTS="false")
    assert "certs=false" in checkout.calls("sync")[0]


def test_folder_that_cannot_be_written_is_named(checkout):
    checkout.add_uv()
    checkout.write(".fdl", "in the way")
    result = checkout.run()
    assert result.returncode == 1
    assert result.stderr.splitlines()[0] == f"error: cannot write to {checkout.root}/.fdl"


def test_shellcheck_finds_nothing():
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed: apt-get install shellcheck")
    result = subprocess.run(
        [shellcheck, "--shell=sh", str(SCRIPT)], capture_output=True, text=True, check=False
    )
    assert result.stdout == ""
    assert result.returncode == 0
