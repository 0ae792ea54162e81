"""The table of environment variables against the sources that read them."""

import re
from pathlib import Path

import flodl_sys
from flodl_sys import names

PACKAGE = Path(flodl_sys.__file__).parent


def test_variables_are_listed_once_and_in_order():
    listed = [variable.name for variable in names.VARIABLES]
    assert listed == sorted(set(listed))
    defined = [value for value in vars(names).values() if isinstance(value, names.Variable)]
    assert sorted(defined) == sorted(names.VARIABLES)


def test_every_entry_is_complete():
    for variable in names.VARIABLES:
        assert all(variable), variable
        assert re.fullmatch(r"(FLODL|FDL)_[A-Z_]+[A-Z]", variable.name)
        assert variable.meaning.endswith(".")


def test_no_source_of_this_package_spells_a_name_in_a_string_of_its_own():
    spelled = re.compile(r"""["'](?:FLODL|FDL)_[A-Z_]+["']""")
    sources = [file for file in PACKAGE.rglob("*.py") if file.name != "names.py"]
    assert len(sources) > 10
    assert not {
        str(f): spelled.findall(f.read_text()) for f in sources if spelled.search(f.read_text())
    }


def test_an_empty_variable_counts_as_unset(monkeypatch):
    monkeypatch.setenv("FLODL_HW_ROOT", "")
    assert names.HW_ROOT.get() is None
    monkeypatch.setenv("FLODL_HW_ROOT", "/elsewhere")
    assert names.HW_ROOT.get() == "/elsewhere"
