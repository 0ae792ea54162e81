import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import flodl_cli
from flodl_cli import __main__ as front_door
from flodl_cli.names import BUILTIN_COMMANDS
from flodl_cli.terminal import Paint, columns

HEAVY = {"typer", "rich", "pydantic", "httpx", "torch", "ruamel.yaml", "tomlkit", "click", "flodl"}

ROOT_HELP = """\
Tools for tests

Usage: fdl [OPTIONS] COMMAND [ARGUMENTS]

Options:
  -h, --help         Show help; after a command, the help of that command
  -V, --version      Show the version
  --env NAME, @NAME  Merge fdl.NAME.yml into the manifest
  --gpus SPEC        Limit a command to some GPUs: all, none, or indices and
                     UUIDs (0,1)
  -v, -vv, -vvv      Say more: verbose, debug, trace
  -q, --quiet        Say less
  --ansi, --no-ansi  Force color, or forbid it
  --no-append        Leave out what a run command appends
  --explain          Print what a command would run, and run nothing
  --refresh-schema   Ask the program of a command for its arguments anew

Built-in commands:
{built_in}

Commands of fdl.yml:
  test   pytest
  bench  Trains models

`fdl COMMAND --help` says more about one command. What stands after `--` goes to
the command unchanged.
"""


def small_project(project):
    project.manifest(
        "description: Tools for tests\ncommands:\n  test: {run: pytest}\n  bench: {path: bench}\n"
    )
    project.write("bench/fdl.yml", "description: Trains models\nentry: python -m bench\n")


def test_version_is_that_of_the_package(project):
    import tomllib

    package = Path(__file__).parents[1] / "pyproject.toml"
    declared = tomllib.loads(package.read_text())["project"]["version"]
    assert flodl_cli.__version__ == declared
    for flag in ("--version", "-V"):
        assert project.fdl(flag) == (0, f"flodl-cli {declared}\n", "")


@pytest.mark.parametrize("argv", [[], ["-h"], ["--help"]])
def test_root_help_lists_options_and_commands(project, argv):
    small_project(project)
    rows = columns([*BUILTIN_COMMANDS.items()], width=80, paint=Paint(on=False))
    assert project.fdl(*argv) == (0, ROOT_HELP.format(built_in="\n".join(rows)), "")


def test_help_outside_a_project_lists_the_built_in_commands(project):
    result = project.fdl("--help")
    assert result.code == 0
    assert " Show what the manifests" in result.out
    assert "No fdl.yml here or in a directory above" in result.out


@pytest.mark.parametrize("columns", ["40", "60", "80", "120", "400"])
def test_help_stays_within_the_width(project, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    small_project(project)
    widest = max(len(line) for line in project.fdl("--help").out.splitlines())
    assert widest <= min(max(int(columns), 60), 120)


@pytest.mark.parametrize("argv", [["--help"], ["test", "--help"], ["bench", "--help"], []])
def test_broken_manifest_does_not_block_help(project, argv):
    project.manifest("commands:\n  test: {rn: pytest}\n")
    result = project.fdl(*argv)
    assert result.code == 0
    assert "Manifest problem:\n  fdl.yml:2: commands.test.rn: unknown key 'rn'" in result.out
    assert "    hint: did you mean run?" in result.out
    assert "Built-in commands:" in result.out
    assert result.err == ""


def test_broken_manifest_below_is_shown_and_blocks_only_its_command(project):
    small_project(project)
    project.write("bench/fdl.yml", "entri: python\n")
    help_page = project.fdl("--help")
    assert help_page.code == 0
    assert "bench/fdl.yml:1: entri: unknown key 'entri'" in help_page.out
    assert project.fdl("bench", "--help").code == 0
    failed = project.fdl("bench")
    assert failed.code == 2
    assert failed.err.startswith("error: bench/fdl.yml:1: entri: unknown key 'entri'; keys here: ")
    assert project.explained("test") == "pytest"


def test_command_with_a_broken_manifest_ends_with_2_and_every_fault(project):
    project.manifest("descripton: x\ncommands:\n  test: {run: 3}\n")
    result = project.fdl("test")
    assert result.code == 2
    faults = [line for line in result.err.splitlines() if line.startswith("error:")]
    assert faults[0].startswith("error: fdl.yml:1: descripton: unknown key 'descripton'")
    assert faults[1] == "error: fdl.yml:3: commands.test.run: must be text, not 3"
    assert 'hint: quote it: "3"' in result.err


def test_unknown_command_names_near_ones_and_all(project):
    small_project(project)
    names = ", ".join([*BUILTIN_COMMANDS, "test", "bench"])
    assert project.fdl("tset") == (
        2,
        "",
        f"error: unknown command 'tset'; commands: {names}\nhint: did you mean test?\n",
    )


def test_unknown_command_outside_a_project_says_so(project):
    result = project.fdl("test")
    assert result.code == 2
    assert result.err.startswith(
        f"error: unknown command 'test'; commands: {', '.join(BUILTIN_COMMANDS)}\nhint: no fdl.yml"
    )


def test_unknown_option_before_a_command_is_an_error(project):
    small_project(project)
    result = project.fdl("--frobnicate", "test")
    assert result.code == 2
    assert "unknown option '--frobnicate'" in result.err


@pytest.mark.parametrize(
    ("argv", "source"),
    [
        (["--env", "cu", "test"], "--env"),
        (["@cu", "test"], "@cu"),
        (["config", "show", "@cu"], "@cu"),
    ],
)
def test_overlay_that_is_not_there_names_every_path(project, argv, source):
    small_project(project)
    project.write("fdl.ci.yml", "description: x\n")
    result = project.fdl(*argv)
    assert result.code == 2
    tried = ", ".join(f"{project.root}/fdl.cu.{ending}" for ending in ("yml", "yaml", "json"))
    assert result.err == (
        f"error: overlay 'cu', asked for by {source}, is not there; tried: {tried}\n"
        "hint: did you mean ci?\n"
    )


def test_missing_overlay_of_the_environment_does_not_block_help(project, monkeypatch):
    small_project(project)
    monkeypatch.setenv("FDL_ENV", "ci")
    assert "asked for by $FDL_ENV" in project.fdl("test").err
    page = project.fdl("test", "--help")
    assert page.code == 0
    assert "asked for by $FDL_ENV" in page.out
    assert project.fdl().code == 0
    assert project.fdl("libtorch", "--help").code == 0


def test_overlay_is_listed_and_marked(project):
    small_project(project)
    project.write("fdl.ci.yml", "description: In CI\n")
    assert "Environments:\n  @ci\n" in project.fdl().out
    page = project.fdl("@ci").out
    assert page.startswith("In CI\n")
    assert "  @ci  active\n" in page


@pytest.mark.parametrize("argv", [["@ci", "libtorch", "list"], ["--env=ci", "libtorch"]])
def test_overlay_has_no_effect_on_libtorch(project, argv):
    result = project.fdl(*argv)
    assert (result.code, "--env has no effect" in result.err) == (2, True)


def test_flag_without_use_for_a_built_in_command_is_an_error(project):
    result = project.fdl("--gpus", "0", "config", "check")
    assert result.code == 2
    assert "--gpus has no effect on the built-in command 'config'" in result.err


def test_traceback_only_when_asked_for(project, monkeypatch):
    small_project(project)
    assert "Traceback" not in project.fdl("tset").err
    assert "Traceback" in project.fdl("-vvv", "tset").err
    monkeypatch.setenv("FDL_TRACEBACK", "1")
    assert "Traceback" in project.fdl("tset").err


def test_fault_of_fdl_itself_is_one_line(project, monkeypatch):
    def fail(_context):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(front_door, "_root_help", fail)
    result = project.fdl("--help")
    assert result.code == 1
    assert result.err.startswith(
        "error: fdl failed in a way it should not: ZeroDivisionError: oh\n"
    )
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "error: No space left on device\nhint: make room, then run the same command again\n",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "/x/y"),
            "error: /x/y: Permission denied\nhint: check whose it is, and its permissions\n",
        ),
        (
            OSError(errno.EROFS, "Read-only file system", "z"),
            "error: z: Read-only file system\n"
            "hint: this file system can only be read: choose another place\n",
        ),
    ],
)
def test_what_the_system_refuses_is_no_fault_of_fdl(project, monkeypatch, error, said):
    def fail(_context):
        raise error

    monkeypatch.setattr(front_door, "_root_help", fail)
    assert project.fdl("--help") == (1, "", said)


def test_ctrl_c_while_fdl_loads_is_no_traceback(project):
    code = (
        "import sys\n"
        "class CtrlC:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'flodl_cli.terminal':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, CtrlC())\n"
        "from flodl_cli.__main__ import entry_point\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_working_directory_that_is_gone_is_one_error(project, monkeypatch):
    gone = project.root / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    try:
        result = project.fdl("--help")
    finally:
        monkeypatch.chdir(project.root)
    assert result.code == 1
    assert result.err == (
        "error: the working directory cannot be read: No such file or directory\n"
        "hint: cd to one that exists\n"
    )


def test_color_is_only_used_when_asked_for(project):
    small_project(project)
    assert "\x1b[" not in project.fdl("--help").out
    assert "\x1b[1mOptions:\x1b[0m" in project.fdl("--help", "--ansi").out


def run_fdl(folder, *argv, stdout=subprocess.PIPE):
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    return subprocess.run(
        [sys.executable, "-m", "flodl_cli", *argv],
        cwd=folder,
        env=environ,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


def loaded_modules(folder, *argv):
    code = (
        "import sys, json\n"
        "from flodl_cli.__main__ import main\n"
        "code = main(sys.argv[1:])\n"
        "print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], cwd=folder, capture_output=True, text=True, check=True
    )
    exit_code, modules = json.loads(done.stderr.splitlines()[-1])
    return exit_code, set(modules)


@pytest.mark.parametrize(
    "argv",
    [
        ["--help"],
        ["--version"],
        ["test", "--help"],
        ["bench", "--help"],
        ["--explain", "bench", "quick"],
        ["__complete", "bash", "1", "--", "fdl", "be"],
        ["__complete", "bash", "4", "--", "fdl", "libtorch", "download", "--cuda", ""],
        ["ok"],
    ],
)
def test_warm_cache_loads_nothing_heavy(project, argv):
    small_project(project)
    manifest = project.root / "fdl.yml"
    manifest.write_text(manifest.read_text() + "  ok: {run: 'true'}\n")
    assert project.fdl("--help").code == 0
    code, modules = loaded_modules(project.root, *argv)
    assert code == 0
    assert modules & HEAVY == set()


def test_cold_cache_loads_the_models(project):
    small_project(project)
    _, modules = loaded_modules(project.root, "--help")
    assert {"pydantic", "ruamel.yaml"} <= modules
    assert modules & (HEAVY - {"pydantic", "ruamel.yaml"}) == set()


def test_built_in_command_loads_no_rich_and_no_torch(project):
    small_project(project)
    code, modules = loaded_modules(project.root, "config", "check")
    assert code == 0
    assert "typer" in modules
    assert modules & {"rich", "httpx", "torch", "click"} == set()


def test_reader_that_went_away_is_no_traceback(project):
    small_project(project)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        done = run_fdl(project.root, "--help", stdout=closed)
    assert done.returncode == 1
    assert done.stderr == ""


def test_full_disk_on_stdout_is_an_error(project):
    with Path("/dev/full").open("w") as full:
        done = run_fdl(project.root, "--version", stdout=full)
    assert done.returncode == 1
    assert done.stderr == "error: standard output cannot be written: No space left on device\n"
