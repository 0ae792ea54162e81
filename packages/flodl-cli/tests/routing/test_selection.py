def both(project):
    project.manifest("commands: {ci: {run: echo command}, t: {run: 'echo $FDL_ENV$X'}}\n")
    project.write("fdl.ci.yml", "env: {X: '!'}\n")
    project.write("fdl.dev.yml", "")


def test_three_ways_to_ask_for_an_overlay(project, monkeypatch):
    both(project)
    assert project.fdl("--env", "ci", "t").out == "ci!\n"
    assert project.fdl("t", "@ci").out == "ci!\n"
    assert project.fdl("dev", "t").out == "dev\n"
    monkeypatch.setenv("FDL_ENV", "ci")
    assert project.fdl("t").out == "ci!\n"
    assert project.fdl("@dev", "t").out == "dev\n"
    monkeypatch.setenv("FDL_ENV", "")
    assert project.fdl("t").out == "\n"


def test_command_of_the_same_name_is_run_and_a_note_says_so(project):
    both(project)
    result = project.fdl("ci")
    assert (result.code, result.out) == (0, "command\n")
    assert "note: 'ci' is a command and an overlay: this runs the command" in result.err
    assert "`fdl @ci ci`" in result.err
    assert project.fdl("@ci", "ci").err == ""


def test_strict_environment_makes_it_an_error(project, monkeypatch):
    both(project)
    monkeypatch.setenv("FDL_STRICT_ENV", "1")
    result = project.fdl("ci")
    assert (result.code, result.out) == (2, "")
    assert "is a command and an overlay, and $FDL_STRICT_ENV is set" in result.err


def test_check_reports_the_collision(project):
    both(project)
    result = project.fdl("config", "check")
    assert result.code == 0
    assert "note: 'ci' is a command and an overlay" in result.err


def test_check_of_all_overlays_says_each_fault_once(project):
    both(project)
    project.write("fdl.dev.yml", "entyr: x\n")
    assert project.fdl("config", "check").code == 0
    result = project.fdl("config", "check", "--all-envs")
    assert result.code == 2
    assert result.err.count("error: fdl.dev.yml:1: entyr: unknown key") == 1


def test_word_that_is_neither_is_an_unknown_command(project):
    both(project)
    assert "unknown command 'cx'" in project.fdl("cx", "t").err


def test_overlay_of_a_first_word_reaches_nested_and_built_in_commands(project):
    both(project)
    assert "fdl.dev.yml: ok" in project.fdl("dev", "config", "check").out
    assert "active" in project.fdl("dev").out
