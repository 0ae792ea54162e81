import re

import pytest

from flodl_cli.errors import FdlError, UsageError
from flodl_cli.project.skill import Skill, Tool, detected, find_skill, install, skills

GUIDE = Skill(name="port", description="d", text="---\nname: port\n---\n# Guide\n")


def test_the_guide_for_porting_ships_with_fdl(tmp_path):
    (port,) = skills(tmp_path)
    assert port.name == "port"
    assert port.description.startswith("Port a PyTorch training script")


def test_its_examples_run(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", find_skill("port", tmp_path).text, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "SKILL.md", "exec"), {"__name__": "example"})


def test_a_checkout_brings_its_own(tmp_path):
    file = tmp_path / "packages/flodl-cli/src/flodl_cli/data/skills/port/SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text("---\ndescription: own\n---\n")
    (tmp_path / "deep").mkdir()
    assert find_skill("port", tmp_path / "deep").description == "own"
    with pytest.raises(UsageError, match="there is no skill 'x'; there are: port"):
        find_skill("x", tmp_path)


def test_tools_are_known_by_their_folders(tmp_path):
    assert detected(tmp_path) == []
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".claude").mkdir()
    assert detected(tmp_path) == [Tool.CLAUDE, Tool.CURSOR]


def test_a_skill_file_is_written_whole_and_once(tmp_path):
    file, changed = install(GUIDE, Tool.CLAUDE, tmp_path)
    assert (file, changed) == (tmp_path / ".claude/skills/port/SKILL.md", True)
    assert file.read_text() == GUIDE.text
    assert install(GUIDE, Tool.CLAUDE, tmp_path) == (file, False)


@pytest.mark.parametrize(
    ("tool", "name"), [(Tool.CURSOR, ".cursorrules"), (Tool.GENERIC, "PORTING.md")]
)
def test_in_a_file_of_the_users_only_the_block_changes(tmp_path, tool, name):
    file = tmp_path / name
    file.write_text("mine above\n")
    assert install(GUIDE, tool, tmp_path) == (file, True)
    with file.open("a") as stream:
        stream.write("mine below\n")
    newer = Skill(name="port", description="d", text="# Newer\n")
    assert install(newer, tool, tmp_path) == (file, True)
    text = file.read_text()
    assert text.startswith("mine above\n")
    assert text.endswith("mine below\n")
    assert ("# Newer" in text, "# Guide" in text) == (True, False)
    assert install(newer, tool, tmp_path) == (file, False)


def test_a_block_without_an_end_is_left_alone(tmp_path):
    file = tmp_path / "PORTING.md"
    file.write_text("<!-- >>> fdl skill: port >>> -->\nmine\n")
    with pytest.raises(FdlError, match="has no end"):
        install(GUIDE, Tool.GENERIC, tmp_path)
    assert file.read_text().endswith("mine\n")
