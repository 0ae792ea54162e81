import subprocess
import sys


def test_store_and_segments_load_no_torch():
    code = (
        "import sys, flodl.distributed.collective.segments, flodl.distributed.collective.store\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
