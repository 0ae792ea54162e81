import pytest

from flodl_cli.config.variables import blocks_of_settings, has_settings, settings_of
from flodl_cli.errors import UsageError


@pytest.mark.parametrize(
    ("name", "text", "blocks"),
    [
        ("FDL_TRAINING__EPOCHS", "3", {"training": {"epochs": 3}}),
        ("FDL_TRAINING__LR", "1e-3", {"training": {"lr": 0.001}}),
        ("FDL_DDP__ANCHOR", "auto", {"ddp": {"anchor": "auto"}}),
        ("FDL_DDP__PARTITION_RATIOS", "[1, 2]", {"ddp": {"partition_ratios": [1, 2]}}),
        ("FDL_OUTPUT__MONITOR", "null", {"output": {"monitor": None}}),
        ("FDL_OPTIONS__SAVE_DASHBOARD", "true", {"options": {"save-dashboard": True}}),
    ],
)
def test_values_are_read_as_yaml(name, text, blocks):
    assert blocks_of_settings(settings_of({name: text})) == blocks


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("FDL_TRAINING__EPOHCS", "3", "unknown key 'epohcs'"),
        ("FDL_TRAINING__EPOCHS", "many", "must be a whole number, not 'many'"),
        ("FDL_DDP__MODE", "nccl-async", "does not exist"),
        ("FDL_TRAINING__EPOCHS", "[", "is no YAML value"),
    ],
)
def test_what_no_manifest_may_hold_names_the_variable(name, text, said):
    with pytest.raises(UsageError, match=said) as failed:
        settings_of({name: text})
    assert f"${name}" in failed.value.message


def test_other_variables_hold_no_settings():
    assert not has_settings({"FDL_ENV": "ci", "FDL_TRAINING_X": "1", "PATH": ""})
    assert has_settings({"FDL_TRAINING__EPOCHS": "3"})


def test_variable_beats_preset_and_loses_to_the_user(project, monkeypatch):
    project.manifest("entry: e\ncommands: {quick: {training: {epochs: 1}}}\n")
    monkeypatch.setenv("FDL_TRAINING__EPOCHS", "7")
    assert project.explained("quick") == "e --epochs 7"
    assert project.explained("quick", "--", "--epochs", "9") == "e --epochs 7 --epochs 9"
    monkeypatch.setenv("FDL_TRAINING__EPOCHS", "x")
    assert project.fdl("quick").code == 2
    assert project.fdl("--help").code == 0
