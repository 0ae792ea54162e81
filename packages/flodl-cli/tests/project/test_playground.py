import pytest
from ruamel.yaml import YAML

from flodl_cli.project import playground

LONG = "x" * 70


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing yet\n",
        "description: one\n",
        "description: one",
        "commands:\ndescription: one\n",
        "commands: null\n",
        "commands: {}\n",
        "{commands: {a: {run: b}}}\n",
        "{}\n",
        f"commands: {{a: {{run: 'echo {LONG} {LONG}'}}}}\n",
        f"# top\ncommands:\n    a:   {{run: 'echo {LONG} {LONG}'}}  # why\n\n# z\nenv: {{A: b}}\n",
        "commands:\n  a:\n    run: |\n      one\n\n      two\n  # last\n\nenv:\n- x\n",
        "entry: run\ncommands:\n  a:\n    args:\n    - 1\n    - 2",
    ],
)
def test_manifest_gains_one_command_and_keeps_every_line(tmp_path, text):
    file = tmp_path / "fdl.yml"
    file.write_text(text)
    (tmp_path / "fdl.schema.json").write_text("{}")
    playground.write(tmp_path, "1.5.0")
    after = file.read_text()
    before = YAML(typ="safe", pure=True).load(text) or {}
    expected = {"description": playground._DESCRIPTION, "path": "flodl-hf"}
    commands = {**(before.get("commands") or {}), "flodl-hf": expected}
    assert YAML(typ="safe", pure=True).load(after) == {**before, "commands": commands}
    if "{" not in text.partition("commands")[2][:4] and "null" not in text and text[:1] != "{":
        kept = iter(after.splitlines())
        assert all(line in kept for line in text.splitlines()), "lines in their order"
    schema = (tmp_path / "flodl-hf" / "fdl.yml").read_text().partition("\n")[0]
    assert schema == "# yaml-language-server: $schema=../fdl.schema.json"


def test_second_time_changes_nothing(tmp_path):
    file = tmp_path / "fdl.yml"
    file.write_text("commands:\n  flodl-hf: {path: elsewhere}\n")
    playground.write(tmp_path, "1.5.0")
    assert file.read_text() == "commands:\n  flodl-hf: {path: elsewhere}\n"
