import json


def test_check_lists_the_manifests_it_read(project):
    project.manifest("commands: {a: null}\n")
    project.write("a/fdl.yml", "entry: x\n")
    assert project.fdl("config", "check") == (0, "fdl.yml: ok\na/fdl.yml: ok\n", "")


def test_check_reports_every_problem_and_ends_with_2(project):
    project.manifest("commands: {a: null}\n")
    project.write("a/fdl.yml", "x: 1\ny: 2\n")
    result = project.fdl("config", "check")
    assert (result.code, result.out) == (2, "")
    assert "error: a/fdl.yml:1: x: unknown key 'x'" in result.err
    assert "error: a/fdl.yml:2: y: unknown key 'y'" in result.err


def test_check_as_json(project):
    project.manifest("commands:\n  t: {rnu: x}\n")
    result = project.fdl("config", "check", "--json")
    assert result.code == 2
    assert result.err == ""
    (problem,) = json.loads(result.out)["problems"]
    assert problem["line"] == 2
    assert problem["key_path"] == "commands.t.rnu"
    assert problem["hint"] == "did you mean run?"


def test_check_outside_a_project_is_misuse(project):
    result = project.fdl("config", "check")
    assert result.code == 2
    assert result.err.startswith("error: no fdl.yml in ")


def test_schema_goes_to_stdout_or_to_a_file(project):
    printed = project.fdl("config", "schema")
    written = project.fdl("config", "schema", "--out", "schema.json")
    assert (printed.code, written) == (0, (0, "", ""))
    assert (project.root / "schema.json").read_text() == printed.out


def test_schema_that_cannot_be_written_is_one_error(project):
    result = project.fdl("config", "schema", "--out", "gone/schema.json")
    assert result.code == 1
    assert result.err.startswith("error: gone/schema.json cannot be written: No such file")


def test_show_of_a_command_has_its_settings_and_its_words(project):
    project.manifest("commands: {t: {path: t}, r: {run: pytest, append: -q}}\n")
    project.write(
        "t/fdl.yml", "entry: e\ntraining: {epochs: 3}\ncommands: {q: {options: {m: x}}}\n"
    )
    assert project.fdl("config", "show", "--command", "t", "q").out == (
        "training.epochs: 3\noptions.m: x\n# runs: e --epochs 3 --m x\n"
    )
    assert project.fdl("config", "show", "--command", "r").out == "# runs: sh -c 'pytest -q'\n"
    data = json.loads(project.fdl("config", "show", "--command", "t", "--json").out)
    assert data == {"settings": {"training.epochs": "3"}, "argv": ["e", "--epochs", "3"]}


def test_show_of_what_cannot_be_shown_is_misuse(project):
    project.manifest("commands: {t: {path: t}}\n")
    project.write("t/fdl.yml", "commands: {r: {run: x}}\n")
    assert (
        "no command 'x' in t; commands: r"
        in project.fdl("config", "show", "--command", "t", "x").err
    )
    assert "t has no entry to run" in project.fdl("config", "show", "--command", "t").err
    assert project.fdl("config", "show", "a", "b").code == 2
