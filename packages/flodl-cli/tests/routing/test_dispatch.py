import sys

import pytest

EXPLAINED = """\
command      pytest -q 'a b'
directory    {root}
environment  A=1
             FDL_GPU_FEATURE=''
             FDL_PROJECT_ROOT={root}
             FLODL_COLOR=auto
             FLODL_VERBOSITY=1
layers       fdl.yml
"""

SHOW = "commands: {show: {run: 'echo $FLODL_VERBOSITY:$FLODL_COLOR:$A:$FDL_PROJECT_ROOT:$PWD'}}\n"


def test_explain_prints_everything_and_runs_nothing(project):
    project.manifest("commands: {t: {run: pytest, append: -q, env: {A: '1'}}}\n")
    assert project.fdl("t", "--explain", "--", "a b") == (
        0,
        EXPLAINED.format(root=project.root),
        "",
    )


@pytest.mark.parametrize(
    ("commands", "argv", "line"),
    [
        ("{run: pytest, append: -q}", ["t", "--", "-k", "foo"], "pytest -q -k foo"),
        ("{run: nox -s tests, append: -- -q}", ["t", "--", "-R"], "nox -s tests -R -- -q"),
        (
            "{run: nox -s tests, append: -- -q}",
            ["t", "--", "-R", "--", "-k", "foo"],
            "nox -s tests -R -- -q -k foo",
        ),
        (
            "{run: nox -s tests, append: -- -q}",
            ["--no-append", "t", "--", "--", "-k", "foo"],
            "nox -s tests -- -k foo",
        ),
    ],
)
def test_run_lines_are_composed_as_documented(project, commands, argv, line):
    project.manifest(f"commands:\n  t: {commands}\n")
    assert project.explained(*argv) == line


def test_words_without_a_separator_are_refused(project):
    project.manifest("commands: {t: {run: 'nox -s tests', append: '-- -q'}}\n")
    result = project.fdl("t", "-k", "foo")
    assert result.code == 2
    assert result.err.endswith("hint: write: fdl t -- -k foo\n")


def test_child_gets_the_environment_and_runs_beside_the_manifest(project, monkeypatch):
    project.manifest("env: {A: x}\n" + SHOW)
    (project.root / "sub").mkdir()
    monkeypatch.chdir(project.root / "sub")
    assert project.fdl("show", "-vv").out == f"3:auto:x:{project.root}:{project.root}\n"


@pytest.mark.parametrize("code", [0, 1, 2, 7, 255])
def test_exit_code_is_that_of_the_child(project, code):
    project.manifest("commands: {t: {run: exit}}\n")
    assert project.fdl("t", "--", str(code)) == (code, "", "")


def test_pipes_and_variables_of_the_run_line_work(project):
    project.manifest('commands: {t: {run: \'printf "%s|" "$HOME" | tr / . ; echo\'}}\n')
    assert project.fdl("t").out.count(".") >= 1


def test_user_words_reach_the_child_unchanged(project):
    project.manifest("commands: {t: {run: 'printf \"<%s>\"'}}\n")
    words = ["a b", "$HOME", "it's", "", "*", "new\nline", "--help", "-v"]
    assert project.fdl("t", "--", *words).out == "".join(f"<{word}>" for word in words)


def entry_project(project, entry):
    project.manifest("commands: {e: {path: e}}\n")
    project.write("e/fdl.yml", f"entry: {entry}\ncommands: {{quick: {{args: [quick]}}}}\n")


def test_entry_gets_its_words_without_a_shell(project):
    entry_project(project, f"{sys.executable} -c 'import sys; print(sys.argv[1:])'")
    assert project.fdl("e", "quick", "--x", "$HOME", "--", "--help").out == (
        "['quick', '--x', '$HOME', '--help']\n"
    )


def test_entry_that_is_not_there_is_127(project):
    entry_project(project, "no-such-program")
    result = project.fdl("e")
    assert result.code == 127
    assert result.err.startswith("error: there is no program 'no-such-program' to run\nhint: ")


def test_entry_that_is_not_executable_is_126(project):
    project.write("e/tool", "text")
    entry_project(project, "./tool")
    result = project.fdl("e")
    assert result.code == 126
    assert "'./tool' cannot be run: Permission denied" in result.err


def test_gpus_limit_the_child_only(project, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    project.manifest("commands: {t: {run: 'echo [$CUDA_VISIBLE_DEVICES][$HIP_VISIBLE_DEVICES]'}}\n")
    assert project.fdl("t", "--gpus", "1,0").out == "[1,0][1,0]\n"
    assert project.fdl("--gpus=none", "t").out == "[][]\n"


def test_command_that_needs_what_is_missing_says_so_when_it_is_run(project):
    project.manifest("commands:\n  t:\n    run: pytest\n    cluster: true\n")
    result = project.fdl("t")
    assert result.code == 2
    assert result.err == (
        "error: fdl.yml:4: commands.t.cluster: this version of fdl cannot spread a command over "
        "hosts\nhint: remove the key to run on this host only\n"
    )


def test_no_prebuild_is_refused(project):
    project.manifest("commands: {t: {run: pytest}}\n")
    assert project.fdl("--no-prebuild", "t").code == 2


def test_crash_of_the_child_is_named(project):
    project.manifest("commands: {t: {run: 'kill -SEGV $$'}}\n")
    result = project.fdl("t")
    assert result.code == 139
    assert "exit code 139: ended by SIGSEGV" in result.err
    assert "ended by" not in project.fdl("-q", "t").err
