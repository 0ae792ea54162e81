import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time

import pytest

from flodl_cli.app import app, builtin
from flodl_cli.names import BUILTIN_COMMANDS, SUBCOMMANDS
from flodl_cli.project.completion import completion_script
from flodl_cli.routing.options import OPTION_VALUES, OPTIONS


@pytest.fixture
def tried(project, monkeypatch, tmp_path):
    monkeypatch.setenv("FLODL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FLODL_HW_ROOT", str(tmp_path / "hardware"))
    project.manifest(
        "commands:\n  test: {run: pytest, description: Run the tests}\n  train: {path: train}\n"
    )
    project.write("fdl.ci.yml", "commands: {extra: {run: 'true'}}\n")
    project.write(
        "train/fdl.yml",
        "entry: echo\n"
        "schema:\n"
        "  args: [{name: run, required: false, completer: echo run1 run2}]\n"
        "  options:\n"
        "    model: {short: m, choices: [mlp, lstm]}\n"
        "    slow: {completer: sleep 9}\n"
        "    fast: {type: bool}\n"
        "commands: {quick: {args: [x], description: One epoch}}\n",
    )

    def complete(text, shell="bash"):
        words = text.split(" ")
        result = project.fdl("__complete", shell, str(len(words) - 1), "--", *words)
        assert (result.code, result.err) == (0, "")
        return result.out.splitlines()

    return complete


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("fdl te", ["test"]),
        ("fdl train q", ["quick"]),
        ("fdl train r", ["run1", "run2"]),
        ("fdl train --m", ["--model"]),
        ("fdl train --model ", ["mlp", "lstm"]),
        ("fdl train -m l", ["lstm"]),
        ("fdl train --fast r", ["run1", "run2"]),
        ("fdl train quick --model m", ["mlp"]),
        ("fdl @", ["@ci"]),
        ("fdl --env ", ["ci"]),
        ("fdl @ci e", ["extra"]),
        ("fdl ci e", ["extra"]),
        ("fdl --gpus ", ["all", "none"]),
        ("fdl --exp", ["--explain"]),
        ("fdl test ", []),
        ("fdl test -- ", []),
        ("fdl nonsense ", []),
        ("fdl --env a --env b ", []),
        ("fdl config s", ["show", "schema"]),
        ("fdl config show ", ["ci"]),
        ("fdl libtorch act", ["activate"]),
        ("fdl libtorch download --rocm ", ["7.0", "7.1", "7.2"]),
        ("fdl completions f", ["fish"]),
        ("fdl libtorch download --c", ["--cpu", "--cuda"]),
        ("fdl libtorch env --shell f", ["fish"]),
        ("fdl skill install --tool c", ["claude", "cursor"]),
        ("fdl probe --d", ["--data-path", "--docker"]),
        ("fdl add ", ["flodl-hf"]),
        ("fdl torch use a", ["auto"]),
        ("fdl torch use rocm", ["rocm7.1", "rocm7.2"]),
    ],
)
def test_words_that_may_stand_there(tried, text, found):
    assert tried(text) == found


def test_options_of_built_in_commands_are_those_that_they_take():
    found = {}

    def look(command, words):
        options = [each for each in command.params if each.param_type_name == "option"]
        spelled = [name for each in options for name in (*each.opts, *each.secondary_opts)]
        if spelled:
            found[" ".join(words)] = tuple(name for name in spelled if name.startswith("--"))
        for each in options:
            if each.type_descriptor.is_choice and each.opts[0] in OPTION_VALUES:
                choices = tuple(str(choice) for choice in each.type_descriptor.choices)
                assert choices == OPTION_VALUES[each.opts[0]]
        for name, each in getattr(command, "commands", {}).items():
            look(each, (*words, name))

    for name in BUILTIN_COMMANDS:
        look(builtin(name), (name,))
    assert found == OPTIONS


def test_first_words_are_commands_and_overlays(tried):
    assert set(tried("fdl ")) == {*BUILTIN_COMMANDS, "test", "train", "ci"}


def test_meanings_are_told_to_shells_that_show_them(tried):
    assert tried("fdl te", "zsh") == ["test\tRun the tests"]
    assert tried("fdl train q", "fish") == ["quick\tOne epoch"]


def test_variants_and_published_versions_of_libtorch(tried, project):
    folder = project.root / "libtorch" / "precompiled" / "cpu"
    folder.mkdir(parents=True)
    (folder / ".arch").write_text("")
    assert tried("fdl libtorch activate ") == ["precompiled/cpu"]
    assert "13.0" in tried("fdl libtorch download --cuda ")
    assert "2.13.0" in tried("fdl libtorch download --version ")


def test_slow_completer_is_given_up(tried, monkeypatch):
    from flodl_cli.routing import completing

    monkeypatch.setattr(completing, "_COMPLETER_LIMIT_S", 0.05)
    assert tried("fdl train --slow ") == []


def test_broken_manifest_and_nonsense_give_nothing(tried, project):
    project.manifest("commands: [")
    assert tried("fdl ") == []
    assert project.fdl("__complete", "bash", "x").out == ""


def test_outside_a_project_there_are_the_built_in_commands(tried, project):
    (project.root / "fdl.yml").unlink()
    (project.root / "fdl.ci.yml").unlink()
    assert set(tried("fdl ")) == set(BUILTIN_COMMANDS)


def test_table_of_subcommands_is_that_of_the_commands(project):
    assert app is not None
    for name in BUILTIN_COMMANDS:
        names = tuple(getattr(builtin(name), "commands", {}))
        if name == "completions":
            assert SUBCOMMANDS[name] == ("bash", "zsh", "fish", "powershell")
        else:
            assert SUBCOMMANDS.get(name, ()) == names


@pytest.fixture
def shell_path(fake_program):
    fake_program("fdl", f'exec "{sys.executable}" -m flodl_cli "$@"')


@pytest.mark.usefixtures("shell_path")
@pytest.mark.parametrize(
    ("line", "word", "found"),
    [
        ("fdl tes", "tes", "test"),
        ("fdl train --model l", "l", "lstm"),
        ("fdl @", "", "ci"),
        ("fdl tr", "tr", "train"),
    ],
)
def test_bash_completes(tried, project, line, word, found):
    before = "(fdl @ ci)" if "@" in line else f"({line})"
    words = before.strip("()").split()
    place = len(words) - 1
    if "@" in line:
        words, place = ["fdl", "@", ""], 2
    quoted = " ".join(f"'{each}'" for each in words)
    script = (
        f"{completion_script('bash')}\n"
        f"COMP_LINE='{line}' COMP_POINT={len(line)} COMP_WORDS=({quoted}) COMP_CWORD={place}\n"
        '_fdl; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True, cwd=project.root
    )
    assert found in done.stdout.split()


@pytest.mark.usefixtures("shell_path")
@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish on this machine")
def test_fish_completes(tried, project):
    script = completion_script("fish") + "\ncomplete -C 'fdl tes'"
    done = subprocess.run(
        ["fish", "-c", script], capture_output=True, text=True, check=True, cwd=project.root
    )
    assert done.stdout.startswith("test\t")


@pytest.mark.usefixtures("shell_path")
@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh on this machine")
@pytest.mark.parametrize(
    ("typed", "completed"), [("fdl tes", "fdl test"), ("fdl train --model ls", "--model lstm")]
)
def test_zsh_completes_what_is_typed(tried, project, typed, completed):
    screen = typed_into_zsh(project.root, completion_script("zsh"), f"{typed}\t", completed)
    assert completed in screen


def typed_into_zsh(root, script, keys, expected):
    """What a terminal shows when ``keys`` are typed into a zsh that has the script."""
    (root / ".zshrc").write_text(
        f"PROMPT='ready> '\nautoload -Uz compinit && compinit -u -D\n{script}\n"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(root)
        os.environ.update(ZDOTDIR=str(root), TERM="dumb", HOME=str(root))
        os.execvp("zsh", ["zsh", "-i"])
    try:
        screen = until(terminal, "", "ready> ")
        os.write(terminal, keys.encode())
        return until(terminal, screen, expected)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def until(terminal, screen, expected):
    """Read what the terminal shows until it holds ``expected``, for at most 20 seconds."""
    give_up = time.monotonic() + 20
    while expected not in screen and time.monotonic() < give_up:
        if select.select([terminal], [], [], 0.5)[0]:
            screen += os.read(terminal, 4096).decode(errors="replace")
    return screen
