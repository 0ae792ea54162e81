"""The small libtorch folders and archives of the service's tests."""

import importlib.util
from pathlib import Path

_file = Path(__file__).parents[1] / "libtorch" / "conftest.py"
_spec = importlib.util.spec_from_file_location("libtorch_fixtures", _file)
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
make_libtorch, make_zip = _module.make_libtorch, _module.make_zip
