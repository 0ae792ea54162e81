"""The program as users start it: each test runs it in a process of its own."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from shutil import ignore_patterns

import pytest

import flodl
from ddp_bench.run_folder import ARTIFACTS
from ddp_bench.training_log import parse_log

PROGRAM = [sys.executable, "-m", "ddp_bench"]
CELL = ("--model", "logistic", "--mode", "solo-0", "--device", "cpu")
THEN_START = "; os.execv(sys.argv[1], sys.argv[1:])"
FORMER = {name: f"former {name}" for name in ARTIFACTS}


def run(*arguments, prefix=()):
    command = [*prefix, *PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def after(*statements):
    """Return what to put before a command so that these statements hold when it starts."""
    code = "; ".join(["import os, resource, signal, sys", *statements])
    return [sys.executable, "-c", code + THEN_START]


@pytest.fixture
def former(tmp_path):
    """Return an output folder with the artifacts of an earlier run in it."""
    folder = tmp_path / "runs" / "logistic" / "solo-0"
    folder.mkdir(parents=True)
    for name, text in FORMER.items():
        (folder / name).write_text(text)
    return tmp_path / "runs"


def assert_untouched(output):
    folder = output / "logistic" / "solo-0"
    assert {path.name: path.read_text() for path in folder.iterdir()} == FORMER


def test_real_cell_meets_its_floor_and_leaves_its_files(tmp_path):
    done = run(*CELL, "--output", tmp_path, "--json")
    assert (done.returncode, done.stderr.count("  epoch ")) == (0, 6), done.stderr
    cell = json.loads(done.stdout)["cells"][0]
    assert cell["gates"]["sane"]["verdict"] == "PASS"
    assert cell["result"]["final"]["eval"] >= cell["result"]["config"]["floor"] == 0.86
    assert cell["result"]["config"]["threads"] == 1
    folder = tmp_path / "logistic" / "solo-0"
    assert json.loads((folder / "result.json").read_text()) == cell["result"]
    assert len(parse_log((folder / "training.log").read_text()).epochs) == 6
    assert sorted(path.name for path in folder.iterdir()) == sorted(ARTIFACTS)


def test_wrong_model_is_misuse_with_the_legal_names(tmp_path):
    done = run("--model", "logstic", "--output", tmp_path / "runs")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: unknown model 'logstic'; models: logistic, mlp, lenet, conv-ae, char-rnn\n"
        "hint: did you mean logistic? '--list' describes each\n"
    )
    assert not (tmp_path / "runs").exists()


def test_run_folder_below_a_file_is_refused_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    done = run(*CELL, "--output", tmp_path / "file" / "runs")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: run folder {tmp_path}/file/runs/logistic/solo-0: "
        "it cannot be written: Not a directory\n"
        "hint: choose a folder on a disk with room that you may write, with --output DIR\n"
    )


def test_truncated_mini_file_is_named_before_training(tmp_path, former):
    package = tmp_path / "installed" / "flodl"
    shutil.copytree(Path(flodl.__file__).parent, package, ignore=ignore_patterns("__pycache__"))
    images = package / "data" / "datasets" / "mini" / "mnist" / "train-images-idx3-ubyte.gz"
    images.write_bytes(images.read_bytes()[:-100])
    path_first = after(f"os.environ['PYTHONPATH'] = {str(package.parent)!r}")
    done = run(*CELL, "--output", former, prefix=path_first)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: {images}: ")
    assert "Traceback" not in done.stderr
    assert_untouched(former)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("ro", "it cannot be written: Read-only file system"),
        ("size=64k", "the run's files need 287 KB, 64 KB are free"),
    ],
)
def test_unsuitable_file_system_is_refused_before_training(tmp_path, options, reason):
    mount = f"mount -t tmpfs -o {options} none {tmp_path}"
    own_mounts = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    mounted = shutil.which("unshare") and subprocess.run([*own_mounts, mount], check=False)
    if not mounted or mounted.returncode:
        pytest.skip("this machine lets nobody mount a tmpfs in a namespace of its own")
    done = run(*CELL, "--output", tmp_path, prefix=[*own_mounts, f'{mount} && exec "$@"', "sh"])
    assert done.returncode == 1
    assert "epoch" not in done.stdout
    assert done.stderr.startswith(f"error: run folder {tmp_path}/logistic/solo-0: {reason}\n")


def test_disk_that_fills_during_the_checkpoint_costs_only_the_new_run(former):
    limited = after("resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, 16_384))")
    done = run(*CELL, "--epochs", 1, "--output", former, prefix=limited)
    assert done.returncode == 1
    assert "epoch 1/1" in done.stdout
    assert "model.fdl" in done.stderr
    assert "File too large" in done.stderr
    assert "logistic/solo-0 was dropped, its folder is as it was before" in done.stderr
    assert "Traceback" not in done.stderr
    assert_untouched(former)


def test_interruption_in_mid_epoch_leaves_former_files_alone(former):
    # A shell that starts the tests in the background may have interrupts ignored.
    interruptible = after("signal.signal(signal.SIGINT, signal.SIG_DFL)")
    child = subprocess.Popen(
        [*interruptible, *PROGRAM, *CELL, "--epochs", "100000", "--output", str(former)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while "loss=" not in (line := child.stdout.readline()):
            assert line, child.stderr.read()
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=120)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == 130
    assert errors.splitlines()[-1] == (
        "interrupted: logistic/solo-0 was dropped, its folder is as it was before; none finished"
    )
    assert "Traceback" not in errors
    assert_untouched(former)
