import json


def two_programs(project):
    project.manifest("entry: echo\nschema: {}\ncommands: {a: {path: a}}\n")
    project.write("a/fdl.yml", "entry: sh ask.sh\n")
    project.write("a/ask.sh", """echo '{"options": {"lr": {"type": "float"}}}'\n""")


def test_list_says_what_is_known(project):
    two_programs(project)
    assert project.fdl("schema", "list").out == (
        f".  inline  .fdl/schema-cache/{project.root.name}.json\n"
        "a  none    a/.fdl/schema-cache/a.json\n"
    )
    project.fdl("schema", "refresh", "a")
    data = json.loads(project.fdl("schema", "list", "--json").out)
    assert [(each["name"], each["status"]) for each in data] == [(".", "inline"), ("a", "fresh")]


def test_clear_forgets(project):
    two_programs(project)
    project.fdl("schema", "refresh", "a")
    assert project.fdl("schema", "clear", "a").out == "cleared: a\n"
    assert project.fdl("schema", "clear").out == "cleared: none\n"


def test_unknown_command_names_those_there_are(project):
    two_programs(project)
    result = project.fdl("schema", "refresh", "b")
    assert result.code == 2
    assert "'b' leads to no entry; those that do: ., a" in result.err


def test_outside_a_project_is_misuse(project):
    assert project.fdl("schema", "list").code == 2
    assert project.fdl("schema").code == 0
