import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("flodl.records.tree", ["torch", "fastapi"]),
        ("flodl.records.journal_reader", ["torch", "fastapi"]),
        ("flodl.records.timeline_export", ["torch", "fastapi"]),
        ("flodl.web.app", ["torch"]),
        ("flodl.web.archive", ["torch", "fastapi"]),
        ("flodl.web.isolated", ["torch"]),
    ],
)
def test_records_load_neither_torch_nor_a_server_and_the_server_no_torch(module, absent):
    script = f"import sys, {module}; print([n for n in {absent!r} if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
