import inspect
import re

import flodl.core.errors as errors
from flodl.core.errors import ConfigError, DatasetFormatError, FlodlError, RunInterrupted


def test_the_hint_stands_on_its_own_line_and_is_left_out_when_there_is_none():
    assert str(FlodlError("a=1: must be 2", hint="set a=2")) == "a=1: must be 2\nhint: set a=2"
    assert str(FlodlError("a=1: must be 2")) == "a=1: must be 2"


def test_a_format_error_names_source_and_offset():
    error = DatasetFormatError("train.gz", 16, "expected 28 rows, found 0")
    assert str(error) == "train.gz, byte 16: expected 28 rows, found 0"
    assert str(DatasetFormatError("train.gz", None, "empty")) == "train.gz: empty"


def test_config_errors_are_value_errors():
    assert issubclass(ConfigError, ValueError)


def test_an_interruption_is_not_swallowed_by_except_exception():
    assert issubclass(RunInterrupted, KeyboardInterrupt)
    assert not issubclass(RunInterrupted, Exception)


def test_the_drawn_tree_is_the_tree():
    classes = {
        name
        for name, value in inspect.getmembers(errors, inspect.isclass)
        if value.__module__ == errors.__name__
    }
    drawn = set(re.findall(r"^[│├└─ ]*([A-Z]\w+) ", errors.__doc__, flags=re.M))
    assert classes == drawn & classes, f"missing in the drawing: {sorted(classes - drawn)}"
