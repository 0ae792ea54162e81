import tomllib

import pytest

from flodl_cli.errors import FdlError
from flodl_cli.project.torch_index import depends_on_torch, with_backend

BEFORE = """\
[project]
name = "x" # mine

[[tool.uv.index]]
name = "own"
url = "https://example.org/simple"

[tool.uv.sources]
other = { path = "../other" }

[tool.ruff]
line-length = 100
"""


def test_index_and_sources_are_added_and_the_rest_stays():
    after = with_backend(BEFORE, "cu130")
    uv = tomllib.loads(after)["tool"]["uv"]
    assert [each["name"] for each in uv["index"]] == ["own", "pytorch-cu130"]
    assert uv["index"][1]["url"].endswith("/whl/cu130")
    assert uv["index"][1]["explicit"] is True
    assert uv["sources"]["torch"] == uv["sources"]["torchvision"] == {"index": "pytorch-cu130"}
    assert uv["sources"]["other"] == {"path": "../other"}
    assert 'name = "x" # mine' in after
    assert "\n\n[tool.ruff]\n" in after


def test_another_backend_replaces_the_one_before():
    after = with_backend(with_backend(BEFORE, "cu130"), "cpu")
    assert tomllib.loads(after) == tomllib.loads(with_backend(BEFORE, "cpu"))


def test_same_backend_changes_nothing():
    once = with_backend(BEFORE, "cpu")
    assert tomllib.loads(with_backend(once, "cpu")) == tomllib.loads(once)


def test_file_without_tables_gets_them():
    assert tomllib.loads(with_backend("", "cpu"))["tool"]["uv"]["index"][0]["name"] == "pytorch-cpu"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[tool.uv.sources]\ntorch = { path = "../torch" }\n', "sources.torch is set already"),
        ('[tool.uv.sources]\ntorch = { index = "mine" }\n', "sources.torch is set already"),
        ("[tool", "cannot be changed"),
        ("tool = 1\n", "cannot be changed"),
    ],
)
def test_what_somebody_else_wrote_is_left_alone(text, said):
    with pytest.raises(FdlError, match=said):
        with_backend(text, "cpu")


def test_dependency_on_torch_is_one_of_the_project_itself():
    assert depends_on_torch('[project]\ndependencies = ["numpy", "Torch >= 2"]\n')
    assert not depends_on_torch('[project]\ndependencies = ["torchvision", "flodl"]\n')
    assert not depends_on_torch("")
