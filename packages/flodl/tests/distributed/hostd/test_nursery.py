"""Ranks in real processes: the two ways to start one must not be told apart by the rank."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.multiproc
HARNESS = Path(__file__).parent.parent / "programs" / "nursery.py"
FACTS = """
import json, os, signal, sys
place = json.loads(os.environ["FLODL_INTERNAL_RUN"])
print(json.dumps({
    "argv": sys.argv, "orig": sys.orig_argv[1:], "name": __name__,
    "file": globals().get("__file__"), "cwd": os.getcwd(),
    "path": [os.path.abspath(p) for p in sys.path],
    "role": os.environ["FLODL_INTERNAL_ROLE"], "extra": os.environ.get("EXTRA"),
    "number": place["number"], "leads_group": os.getpgrp() == os.getpid() == os.getsid(0),
    "parent_is_daemon": os.getppid() == place["parent"], "optimize": sys.flags.optimize,
    "sigint": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "sigterm": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
    "fds": len([f for f in os.listdir("/proc/self/fd")]) - 1,
    "link": os.read(place["link_fd"], 1).decode(), "main": sys.modules["__main__"].__name__,
    "spec": getattr(__spec__, "name", None), "stdin": sys.stdin.read(),
}))
sys.exit(3)
"""


def borne(*tasks, use_zygote=True, options=(), cwd=None, environ=None):
    plan = {"use_zygote": use_zygote, "tasks": list(tasks), "options": list(options)}
    done = subprocess.run(
        [sys.executable, str(HARNESS), json.dumps(plan)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **(environ or {})},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    return told["results"], told, done.stderr


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "facts.py").write_text(FACTS)
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "facts.py").write_text(FACTS)
    (package / "__main__.py").write_text(FACTS)
    return tmp_path


def test_a_copy_and_a_new_interpreter_look_the_same_from_within(folder):
    tasks = [
        {"words": words, "cwd": str(cwd), "environ": {"EXTRA": "e"}}
        for words, cwd in (
            (["facts.py", "a", "-b"], folder),
            (["pkg/facts.py"], folder),
            (["-m", "pkg.facts", "x"], folder),
            (["-m", "pkg"], folder),
            (["-c", FACTS, "y"], folder),
            (["pkg"], folder),
        )
    ]
    copies, told, _ = borne(*tasks)
    fresh, _, _ = borne(*tasks, use_zygote=False)
    for copy, new, task in zip(copies, fresh, tasks, strict=True):
        assert copy["code"] == new["code"] == 3, copy["output"] + new["output"]
        facts, expected = json.loads(copy["output"]), json.loads(new["output"])
        if task["words"] == ["pkg"]:  # runpy puts the folder before its own absolute path
            facts["path"] = list(dict.fromkeys(facts["path"]))
        assert facts == expected, task["words"]
        assert facts["leads_group"]
        assert facts["parent_is_daemon"]
        assert facts["role"] == "rank"
        assert facts["link"] == "x"
    assert told["zygote"] is not None


@pytest.mark.slow
def test_options_of_the_interpreter_reach_the_ranks(folder):
    task = {"words": ["-O", "facts.py"], "cwd": str(folder)}
    (result,), _, _ = borne(task, options=["-O"])
    assert json.loads(result["output"])["optimize"] == 1


@pytest.mark.slow
def test_a_payload_is_taken_by_its_function(folder):
    (folder / "taker.py").write_text(
        "import sys\ndef take(file):\n    print('took', file)\n    sys.exit(5)\n"
    )
    task = {"cwd": str(folder), "entry": "taker:take", "payload": "/x/payload.pkl"}
    for use_zygote in (True, False):
        environ = {"PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        (result,), _, _ = borne(task, use_zygote=use_zygote, environ=environ)
        assert (result["output"], result["code"]) == ("took /x/payload.pkl\n", 5)


@pytest.mark.slow
def test_copies_draw_other_random_numbers_and_share_torchs_fixed_seed(folder):
    (folder / "draw.py").write_text(
        "import random, numpy, torch\n"
        "print(random.random(), numpy.random.rand())\n"
        "print(torch.rand(1).item(), torch.get_num_threads())\n"
    )
    task = {"words": ["draw.py"], "cwd": str(folder)}
    results, _, _ = borne(task, task)
    one, other = (result["output"].split() for result in results)
    assert one[0] != other[0]
    assert one[1] != other[1]
    assert one[2] == other[2]
    assert one[3] == other[3] == "1"


@pytest.mark.slow
def test_each_way_to_end_is_the_daemons_to_see(folder):
    (folder / "end.py").write_text(
        "import os, signal, sys\n"
        "how = sys.argv[1]\n"
        "if how == 'kill': os.kill(os.getpid(), signal.SIGKILL)\n"
        "if how == 'raise': raise ValueError('in user code')\n"
        "sys.exit(how if how == 'text' else int(how))\n"
    )
    tasks = [
        {"words": ["end.py", how], "cwd": str(folder)}
        for how in ("0", "7", "kill", "raise", "text")
    ]
    results, _, _ = borne(*tasks)
    assert [result["code"] for result in results] == [0, 7, -9, 1, 1]
    assert 'end.py", line 4' in results[3]["output"]
    assert "ValueError: in user code" in results[3]["output"]
    assert results[4]["output"] == "text\n"


def test_a_dead_zygote_takes_no_rank_along_and_the_next_one_starts_by_itself(folder):
    (folder / "last.py").write_text(
        "import json, os, time\n"
        "place = json.loads(os.environ['FLODL_INTERNAL_RUN'])\n"
        "os.read(place['link_fd'], 1)\n"
        "time.sleep(0.3)\n"
        "print('done')\n"
    )
    task = {"words": ["last.py"], "cwd": str(folder)}
    results, _, errors = borne({**task, "kill_zygote": True}, task)
    assert [(r["output"], r["code"]) for r in results] == [("done\n", 0)] * 2
    assert "ranks start by themselves" in errors


@pytest.mark.slow
def test_ranks_end_with_their_daemon(folder):
    (folder / "stay.py").write_text(
        "import time\n"
        "from flodl.distributed.cluster.role import place_of\n"
        "from flodl.distributed.worker.link import RankLink\n"
        "link = RankLink(place_of())\n"
        "time.sleep(60)\n"
    )
    for use_zygote in (True, False):
        plan = {
            "use_zygote": use_zygote,
            "tasks": [{"words": ["stay.py"], "cwd": str(folder), "die": True}],
        }
        done = subprocess.run(
            [sys.executable, str(HARNESS), json.dumps(plan)],
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == -9
        pid = json.loads(done.stdout)["pid"]
        deadline = time.monotonic() + 10
        while _is_alive(pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not _is_alive(pid)


@pytest.mark.slow
def test_a_zygote_that_did_something_is_not_copied_any_more(folder):
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'zygote' in ' '.join(sys.orig_argv):\n"
        "    class Finder:\n"
        "        def find_spec(self, name, path=None, target=None):\n"
        "            if name == 'flodl.trainer':\n"
        "                import torch\n"
        "                torch.cuda.is_initialized = lambda: True\n"
        "    sys.meta_path.insert(0, Finder())\n"
    )
    (folder / "hello.py").write_text("print('hello')\n")
    environ = {"PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    (result,), _, errors = borne({"words": ["hello.py"], "cwd": str(folder)}, environ=environ)
    assert (result["output"], result["code"]) == ("hello\n", 0)
    assert "a GPU runtime was initialized in it; ranks start by themselves" in errors


@pytest.mark.slow
def test_a_zygote_that_cannot_import_torch_is_said_to_be_missing(folder):
    (folder / "torch.py").write_text("raise ImportError('broken torch')\n")
    (folder / "hello.py").write_text("print('hello')\n")
    environ = {"PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    (result,), _, errors = borne({"words": ["hello.py"], "cwd": str(folder)}, environ=environ)
    assert (result["output"], result["code"]) == ("hello\n", 0)
    assert "broken torch" in errors
    assert "the zygote ended in its imports" in errors


def _is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
