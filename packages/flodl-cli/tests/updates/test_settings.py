import json

import pytest

from flodl_cli.updates.settings import UpdateSettings, change_settings, read_settings


@pytest.mark.parametrize(
    "text",
    [None, "", "{", "[]", '{"update_check": 3}', '{"update_check": {"last_check": "x"}}',
     '{"update_check": {"latest_known": [1], "first_run_seen": "yes"}}'],
)  # fmt: skip
def test_what_is_missing_or_broken_is_as_by_default(tmp_path, text):
    file = tmp_path / "config.json"
    if text is not None:
        file.write_text(text)
    assert read_settings(file) == UpdateSettings()


def test_a_change_keeps_what_is_not_its_own(tmp_path):
    file = tmp_path / "new" / "config.json"
    file.parent.mkdir()
    file.write_text('{"theme": "dark", "update_check": {"enabled": false}}')
    change_settings(file, last_check=5.0, latest_known={"flodl": "1.2"})
    assert json.loads(file.read_text()) == {
        "theme": "dark",
        "update_check": {
            "enabled": False,
            "last_check": 5.0,
            "latest_known": {"flodl": "1.2"},
            "first_run_seen": False,
        },
    }
    assert [each.name for each in file.parent.iterdir()] == ["config.json"]
