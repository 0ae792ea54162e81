import json
from pathlib import Path

import pytest

from flodl_cli.config.check import check, manifest_schema, write_text
from flodl_cli.config.model import Manifest
from flodl_cli.errors import FdlError, UsageError


def test_check_reads_every_manifest(project):
    project.manifest("commands: {a: null, b: {path: b}}\n")
    project.write("a/fdl.yml", "commands: {c: {path: ../c}}\n")
    project.write("b/fdl.yml", "x: 1\n")
    project.write("c/fdl.yml", "y: 1\n")
    report = check(str(project.root))
    assert len(report.files) == 4
    assert [problem.key_path for problem in report.problems] == ["y", "x"]


def test_check_outside_a_project_is_misuse(project):
    with pytest.raises(UsageError, match=r"no fdl\.yml in"):
        check(str(project.root))


def test_the_published_schema_is_the_one_that_is_printed():
    published = Path(__file__).parents[4] / "docs" / "schema" / "fdl.schema.json"
    assert published.read_text() == manifest_schema(), "fdl config schema --out FILE"


def test_schema_describes_the_model():
    schema = json.loads(manifest_schema())
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == {
        field.alias or name for name, field in Manifest.model_fields.items()
    }


def test_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    target = tmp_path / "schema.json"
    target.write_text("old")

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(FdlError, match="cannot be written: No space left on device"):
        write_text(target, "new")
    assert [each.name for each in tmp_path.iterdir()] == ["schema.json"]
    assert target.read_text() == "old"
