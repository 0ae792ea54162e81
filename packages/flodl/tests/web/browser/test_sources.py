"""Rules that the page's sources keep; no browser needed."""

import hashlib
import json
import re
from importlib.resources import files

import pytest

STATIC = files("flodl.web").joinpath("static")
ASSETS = files("flodl.core").joinpath("assets")
SOURCES = {
    entry.name: entry.read_text()
    for entry in STATIC.iterdir()
    if entry.name.endswith((".js", ".css", ".html"))
}
MODULES = {
    name: text for name, text in SOURCES.items() if name.endswith(".js") and name != "theme.js"
}
IMPORT = re.compile(r'^import \{ [^}]+ \} from "\./([\w.-]+)";$', re.M)
DECLARED = re.compile(
    r"^(?:export )?(?:async )?(?:function\*?|const|let|class) (\w+|\[[^\]]*\]|\{[^}]*\})", re.M
)


def bundled(entry, seen=None):
    """Modules of a page, imports first."""
    seen = [] if seen is None else seen
    if entry in seen:
        return seen
    seen.append(entry)
    for name in IMPORT.findall(MODULES[entry]):
        bundled(name, seen)
    return seen


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_no_source_makes_markup_from_text_or_code_from_strings(name):
    banned = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment"
        r"|\beval\(|new Function|setHTML"
    )
    assert banned.findall(SOURCES[name]) == []


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_no_source_names_another_origin(name):
    urls = set(re.findall(r"https?://[^\s\"'`)]+", SOURCES[name]))
    assert urls <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("name", [n for n in SOURCES if n.endswith(".html")])
def test_pages_have_no_inline_script_or_style(name):
    assert re.findall(r"<style|\sstyle=|\son\w+=|<script(?![^>]* src=)", SOURCES[name]) == []


@pytest.mark.parametrize("name", sorted(MODULES))
def test_modules_can_be_joined_into_one(name):
    text = MODULES[name]
    lines = [line for line in text.splitlines() if re.match(r"import\b", line)]
    assert all(IMPORT.fullmatch(line) for line in lines)
    assert " as " not in "".join(lines)
    assert "export default" not in text
    assert not re.search(r"^export (?!(async )?function|const|class)", text, re.M)
    assert not re.search(r"</script|<!--", text, re.I)
    assert len(text.splitlines()) <= 400


@pytest.mark.parametrize("entry", ["app.js", "timeline_page.js"])
def test_top_level_names_are_unique_over_a_page(entry):
    owners = {}
    for module in bundled(entry):
        for declared in DECLARED.findall(MODULES[module]):
            for name in re.findall(r"\w+", declared):
                owners.setdefault(name, []).append(module)
    assert {name: where for name, where in owners.items() if len(where) > 1} == {}


def test_every_module_belongs_to_a_page():
    assert set(MODULES) == {*bundled("app.js"), *bundled("timeline_page.js")}


def test_the_chart_library_is_the_one_that_was_looked_at():
    noted = json.loads(ASSETS.joinpath("uPlot.json").read_text())
    assert noted["version"].startswith("1.6.")
    for name, digest in noted["sha256"].items():
        assert hashlib.sha256(ASSETS.joinpath(name).read_bytes()).hexdigest() == digest
    assert "MIT" in ASSETS.joinpath("uPlot.LICENSE").read_text()
