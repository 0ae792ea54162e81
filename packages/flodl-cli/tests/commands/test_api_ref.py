import json


def test_listing_and_json_hold_the_same_names(project):
    package = project.write(
        "flodl/__init__.py", '__all__ = ["f"]\ndef f(x: int) -> int:\n    "One."\n'
    )
    for module in ("nn", "data", "optim", "metrics", "records"):
        project.write(f"flodl/{module}.py", "__all__ = []\n")
    out = project.fdl("api-ref", "--path", str(package.parent.parent)).out
    assert out.startswith("flodl unknown: 1 public classes and functions\n")
    assert "f(x: int) -> int" in out
    data = json.loads(project.fdl("api-ref", "--path", ".", "--json").out)
    assert [each["name"] for each in data["types"]] == ["f"]


def test_without_a_flodl_it_says_where_it_looked(project):
    result = project.fdl("api-ref")
    assert result.code == 1
    assert f"no flodl in {project.root}" in result.err
