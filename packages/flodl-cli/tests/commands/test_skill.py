def test_list_names_the_guides_and_the_tools(project):
    project.write(".claude/x", "")
    out = project.fdl("skill", "list").out
    assert out.startswith("Skills:\n  port")
    assert out.endswith("Tools found here: claude\n")


def test_install_serves_every_tool_found_or_the_one_named(project):
    project.write(".claude/x", "")
    project.write(".cursor/x", "")
    out = project.fdl("skill", "install").out
    assert out == (
        f"wrote {project.root}/.claude/skills/port/SKILL.md\nwrote {project.root}/.cursorrules\n"
    )
    assert project.fdl("skill", "install", "--tool", "claude").out.startswith("up to date: ")
    assert "PORTING.md" in project.fdl("skill", "install", "--tool", "generic").out


def test_without_a_tool_it_is_a_file_for_all(project):
    assert project.fdl("skill", "install").out == f"wrote {project.root}/PORTING.md\n"
    assert project.fdl("skill", "install", "--skill", "x").code == 2
    assert "Usage" in project.fdl("skill").out
