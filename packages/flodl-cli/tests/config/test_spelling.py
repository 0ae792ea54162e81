import datetime

import pytest
from ruamel.yaml import YAML

from flodl_cli.config.spelling import spell_inside, spell_key, spell_value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("python -m train", "python -m train"),
        ("true", "'true'"),
        ("3", "'3'"),
        ("1e3", "'1e3'"),
        ("", "''"),
        (".0", "'.0'"),
        (".5", "'.5'"),
        (".inf", "'.inf'"),
        (".NaN", "'.NaN'"),
        (".venv", ".venv"),
        ("./tool", "./tool"),
        ("../data", "../data"),
        ("/x", "/x"),
        (" a", "' a'"),
        ("a: b", "'a: b'"),
        ("a #b", "'a #b'"),
        ("it's", "it's"),
        ("'q'", "'''q'''"),
        ("two\nlines", '"two\\nlines"'),
        ("nox -s tests --", "nox -s tests --"),
        (True, "true"),
        (None, "null"),
        (0.05, "0.05"),
        ([], "[]"),
        ({}, "{}"),
        ({"a": [1, "b, c"]}, "{ a: [1, 'b, c'] }"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
    ],
)
def test_values_are_quoted_only_where_they_must_be(value, text):
    assert spell_value(value) == text
    assert YAML(typ="safe", pure=True).load(f"k: {text}") == {"k": value}


def test_text_inside_brackets_is_quoted_where_a_comma_would_cut_it():
    assert spell_value("a, b") == "a, b"
    assert spell_inside(["a, b"]) == "['a, b']"


def test_keys_are_quoted_where_they_must_be():
    assert spell_key("save-dashboard") == "save-dashboard"
    assert spell_key("true") == "'true'"
    assert spell_key("1") == "'1'"
