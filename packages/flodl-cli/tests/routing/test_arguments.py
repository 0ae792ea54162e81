import pytest

SCHEMA = """\
entry: echo
args_: x
schema:
  strict: {strict}
  args: [{{name: run, required: false, description: Which run}}]
  options:
    model: {{short: m, choices: [mlp, all], default: all, description: Model to run}}
    epochs: {{type: int, env: EPOCHS, description: How long}}
training: {{epochs: 3}}
commands:
  good: {{options: {{model: mlp}}}}
  bad: {{options: {{model: mpl}}}}
  odd: {{options: {{colour: red}}}}
  pinned: {{args: [--model, mpl]}}
""".replace("args_: x\n", "")


@pytest.fixture
def strict(project):
    project.manifest("commands: {p: null}\n")
    project.write("p/fdl.yml", SCHEMA.format(strict="true"))
    return project


@pytest.fixture
def lenient(project):
    project.manifest("commands: {p: null}\n")
    project.write("p/fdl.yml", SCHEMA.format(strict="false"))
    return project


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("p", "--model", "mpl"), "--model 'mpl' is none of: mlp, all"),
        (("p", "-m=x"), "-m 'x' is none of"),
        (("p", "--epochs", "many"), "--epochs 'many' is not a whole number"),
        (("p", "bad"), "options.model: 'mpl' is none of"),
        (("p", "pinned"), "--model 'mpl' is none of"),
    ],
)
def test_values_are_checked_before_the_program_starts(lenient, argv, said):
    result = lenient.fdl(*argv)
    assert (result.code, result.out) == (2, "")
    assert said in result.err


def test_only_the_preset_that_is_run_is_checked(lenient):
    assert lenient.fdl("p", "good").out == "--epochs 3 --model mlp\n"


def test_unknown_options_stop_a_strict_program_only(strict):
    result = strict.fdl("p", "--modle", "mlp")
    assert result.code == 2
    assert "unknown option --modle\nhint: did you mean --model?" in result.err
    assert "options.colour: the program has no option --colour" in strict.fdl("p", "odd").err
    assert strict.fdl("p", "--", "--model", "all").code == 0


def test_unknown_options_reach_a_lenient_program(lenient):
    assert lenient.fdl("p", "--modle", "x", "-zz").out == "--epochs 3 --modle x -zz\n"
    assert lenient.fdl("p", "odd").code == 0


def test_setting_is_left_out_where_its_variable_is_set(lenient, monkeypatch):
    monkeypatch.setenv("EPOCHS", "7")
    assert lenient.fdl("p", "good").out == "--model mlp\n"
    monkeypatch.setenv("EPOCHS", "")
    assert lenient.fdl("p", "good").out == "--epochs 3 --model mlp\n"


def test_help_shows_what_the_program_takes(lenient):
    page = lenient.fdl("p", "--help").out
    assert "Arguments:\n  run  Which run\n" in page
    assert "  -m, --model <VALUE>  Model to run [default: all] [possible: mlp, all]\n" in page
    assert "  --epochs <VALUE>     How long\n                       [env: EPOCHS]\n" in page


def test_refresh_of_a_shell_line_is_misuse(project):
    project.manifest("commands: {t: {run: 'true'}}\n")
    result = project.fdl("t", "--refresh-schema")
    assert result.code == 2
    assert "is a line for the shell and has no schema" in result.err


def test_program_that_must_be_asked_runs_even_without_an_answer(project):
    project.manifest("commands: {p: null}\n")
    project.write("p/fdl.yml", "entry: echo\nprobe: always\n")
    result = project.fdl("p", "x")
    assert (result.code, result.out) == (0, "x\n")
    assert result.err.startswith("note: echo --fdl-schema: what it printed is no JSON")
    assert project.fdl("p", "--help").err == ""
