RUN_HELP = """\
fdl test: Run the tests

Usage: fdl test [-- ARGUMENTS [-- MORE]]

Runs:
  pytest -q [ARGUMENTS] [-- MORE]

In:
  {root}

Environment:
  A='b c'
"""

LEVEL_HELP = """\
fdl bench: Trains models

Usage: fdl bench [<model> | COMMAND] [ARGUMENTS]

<model>:
  quick  Fast

Commands:
  clean  rm -r runs

Entry:
  python -m bench

In:
  {root}/bench

Defaults:
  training.epochs  3

All other words go to the entry: `fdl bench -- --help` shows the help of the
program itself.
"""

PRESET_HELP = """\
fdl bench quick: Fast

Usage: fdl bench quick [ARGUMENTS]

Effective config:
  training.epochs  1

Effective command:
  python -m bench --epochs 1 --fast

In:
  {root}/bench

ARGUMENTS are passed on: `fdl bench quick -- --help` shows the help of the
program itself.
"""


def bench(project, more=""):
    project.manifest(
        "commands:\n"
        "  test: {run: pytest, append: -q, description: Run the tests, env: {A: b c}}\n"
        "  nox: {run: nox -s tests --}\n"
        "  bench: {path: bench}\n"
    )
    project.write(
        "bench/fdl.yml",
        "description: Trains models\nentry: python -m bench\narg-name: model\n"
        f"training: {{epochs: 3}}\n{more}"
        "commands:\n"
        "  quick: {description: Fast, training: {epochs: 1}, args: [--fast]}\n"
        "  clean: {run: rm -r runs}\n",
    )


def test_run_command_shows_the_line_with_its_slots(project):
    bench(project)
    assert project.fdl("test", "--help").out == RUN_HELP.format(root=project.root)
    assert "  nox -s tests -- [ARGUMENTS] -- [MORE]\n" in project.fdl("nox", "--help").out


def test_level_shows_presets_commands_entry_and_defaults(project):
    bench(project)
    assert project.fdl("bench", "--help").out == LEVEL_HELP.format(root=project.root)


def test_preset_shows_what_it_comes_to(project):
    bench(project)
    assert project.fdl("bench", "quick", "--help").out == PRESET_HELP.format(root=project.root)


def test_help_says_what_cannot_run_yet(project):
    bench(project, "cluster: true\n")
    page = project.fdl("bench", "quick", "-h").out
    assert "Cannot run yet:\n  bench/fdl.yml:5  this version of fdl cannot spread" in page


def test_help_names_the_compose_service(project):
    bench(project, "docker: dev\n")
    assert "Compose service:\n  dev\n" in project.fdl("bench", "quick", "-h").out
    assert " [docker: dev]" in project.fdl("bench", "-h").out


def test_level_without_an_entry_points_to_its_commands(project):
    project.manifest("commands: {tools: null}\n")
    project.write("tools/fdl.yml", "commands: {clean: {run: make clean}}\n")
    assert project.fdl("tools") == (
        0,
        "Usage: fdl tools [COMMAND]\n\nCommands:\n  clean  make clean\n\n"
        "`fdl tools COMMAND --help` says more about one command.\n",
        "",
    )
