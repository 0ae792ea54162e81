"""Every Python block of the README and of the documentation runs."""

import re
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[4]
PAGES = [REPOSITORY / "README.md", *sorted(REPOSITORY.glob("docs/**/*.md"))]
PAGES += sorted(REPOSITORY.glob("packages/*/README.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```", flags=re.M | re.S)


def blocks():
    for page in PAGES:
        for number, match in enumerate(BLOCK.finditer(page.read_text())):
            name = f"{page.relative_to(REPOSITORY)}-{number}"
            yield pytest.param(page, match, id=name)


@pytest.mark.parametrize(("page", "match"), list(blocks()))
def test_example_runs(page, match, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["example"])
    line = page.read_text()[: match.start(1)].count("\n")
    source = "\n" * line + match[1]
    exec(compile(source, str(page), "exec"), {"__name__": "example"})


def test_the_readme_example_leaves_a_checkpoint_and_shows_its_epochs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    example = BLOCK.search((REPOSITORY / "README.md").read_text())[1]
    exec(compile(example, "README.md", "exec"), {"__name__": "example"})
    assert (tmp_path / "mnist.fdl").stat().st_size > 4 * 784 * 64
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[:2] for line in lines[:5]] == [["epoch", f"{n}/5"] for n in range(1, 6)]
    assert lines[5].startswith("  training complete in ")


def test_relative_links_of_the_readmes_lead_somewhere():
    pages = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("packages/*/README.md")]
    broken = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert not broken
