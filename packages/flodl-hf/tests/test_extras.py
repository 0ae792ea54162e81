import subprocess
import sys

import pytest

from flodl import FlodlError
from flodl_hf import HfError, MissingExtraError, load_extra


def test_an_installed_library_is_returned():
    assert load_extra("json", "full").dumps([1]) == "[1]"


def test_a_missing_library_names_the_extra_that_brings_it():
    with pytest.raises(MissingExtraError) as caught:
        load_extra("no_such_library_at_all", "hub")
    assert 'pip install "flodl-hf[hub]"' in str(caught.value)
    assert caught.value.library == "no_such_library_at_all"
    assert all(isinstance(caught.value, kind) for kind in (HfError, FlodlError, ImportError))


def test_a_library_that_is_broken_inside_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "half_installed.py").write_text("import its_own_missing_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="its_own_missing_dependency") as caught:
        load_extra("half_installed", "hub")
    assert not isinstance(caught.value, MissingExtraError)


def test_importing_the_package_loads_no_optional_library():
    program = (
        "import sys, flodl_hf;"
        "print(*sorted({'torch', 'tokenizers', 'huggingface_hub', 'transformers'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""
