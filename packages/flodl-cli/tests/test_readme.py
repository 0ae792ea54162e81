"""The example of the README, run."""

import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_manifest_of_the_readme_does_what_it_says(project):
    root, train = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    project.manifest(root)
    project.write("train/fdl.yml", train)
    shown = re.findall(r"^(fdl (?:test|train).*?)  +# (py\w+ .*)$", README, re.MULTILINE)
    assert len(shown) == 3
    for line, expected in shown:
        assert project.explained(*line.split()[1:]) == expected
    assert project.fdl("config", "check") == (0, "fdl.yml: ok\ntrain/fdl.yml: ok\n", "")


def test_example_of_two_separators_in_the_readme(project):
    project.manifest("commands: {test: {run: nox -s tests, append: -- -q}}\n")
    composed = project.explained("test", "--", "-R", "--", "-k", "parser")
    assert f"`{composed}`" in README.replace("\n", " ")
