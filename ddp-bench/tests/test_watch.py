import json
import re

import pytest

from ddp_bench.app import app
from ddp_bench.errors import UsageError
from ddp_bench.run_folder import ARTIFACTS, DASHBOARD
from ddp_bench.watch import Watch


def run(capsys, folder, *options):
    """Run the smallest cell and return its exit code, its folder and its result."""
    words = ["--model", "logistic", "--mode", "solo-0", "--device", "cpu", "--epochs", "1"]
    with pytest.raises(SystemExit) as ended:
        app([*words, "--output", str(folder), *map(str, options)], standalone_mode=True)
    cell = folder / "logistic" / "solo-0"
    result = json.loads((cell / "result.json").read_text()) if cell.exists() else None
    return ended.value.code, cell, result


def test_a_cell_keeps_its_timeline_and_on_request_its_portal_and_records(tmp_path, capsys):
    code, cell, result = run(
        capsys, tmp_path / "runs", "--save-dashboard", "--dashboard-theme", "light",
        "--record-log", tmp_path / "log", "--reports-per-epoch", 4,
    )  # fmt: skip
    assert code == 0, capsys.readouterr()
    assert {path.name for path in cell.iterdir()} == {*ARTIFACTS, DASHBOARD}
    timeline = json.loads((cell / "timeline.json").read_text())
    assert [event["k"] for event in timeline["events"]].count("epoch_end") == 1
    assert 'data-pin="light"' in (cell / DASHBOARD).read_text()[:2000]
    lines = (tmp_path / "log" / "logistic" / "solo-0" / "root.jsonl").read_text().splitlines()
    assert any(json.loads(line).get("epoch_complete") for line in lines)
    config = result["config"]
    assert (config["save_dashboard"], config["dashboard_theme"]) == (True, "light")
    assert (config["reports_per_epoch"], config["monitor"]) == (4, None)
    assert config["record_log"] == str(tmp_path / "log")


def test_a_page_of_an_earlier_run_is_set_aside_with_the_rest(tmp_path, capsys):
    _, cell, _ = run(capsys, tmp_path / "runs", "--save-dashboard")
    _, _, result = run(capsys, tmp_path / "runs")
    names = {path.name for path in cell.iterdir()}
    assert DASHBOARD not in names
    assert len([name for name in names if re.match(r"dashboard_\d{8}-\d{6}", name)]) == 1
    assert result["config"]["save_dashboard"] is False


def test_a_theme_without_a_page_is_refused(tmp_path, capsys):
    with pytest.raises(UsageError, match="--dashboard-theme dark"):
        Watch(dashboard_theme="dark")
    code, cell, _ = run(capsys, tmp_path / "runs", "--dashboard-theme", "dark")
    assert code == 2
    assert not cell.exists()
    assert "add --save-dashboard" in capsys.readouterr().err
