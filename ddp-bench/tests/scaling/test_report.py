from __future__ import annotations

import json

from ddp_bench.scaling import report
from ddp_bench.scaling.suite import SuiteResult


def test_tables_name_hardware_seeds_arms_bars_and_what_was_left_out(result: SuiteResult) -> None:
    text = report.markdown(result)
    assert "a processor, torch 2.15.0" in text
    assert "1 seeds" in text
    assert "Not run: torchft-diloco: torchft does not load" in text
    assert "| torch-ddp | >20.00 |" in text
    assert "| gloo-cadence | 5.00 |" in text
    assert "time to loss, gloo-cadence / torch-ddp | 0.250 |" in text
    assert "solo |" not in text


def test_json_says_what_holds(result: SuiteResult) -> None:
    facts = json.loads(report.as_json(result))
    assert facts["passed"] is False
    assert facts["runs"][0]["ranks"][0]["steps"] == 100
    held = {each["bar"]: each["holds"] for each in facts["verdicts"]}
    assert held["time to loss, gloo-cadence / torch-ddp"] is True
    assert held["throughput over torch-ddp, part of the ideal gain, gloo-cadence"] is False
