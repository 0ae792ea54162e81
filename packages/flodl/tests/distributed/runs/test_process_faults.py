"""What goes wrong in a run of processes: what its caller sees, how soon, and what is left."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flodl.checkpoint import checkpoint_info

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "programs" / "faulty.py"
LIMIT_S = 100
SAMPLES = 512


class Script:
    """The script, as somebody started it in a terminal."""

    def __init__(self, what, folder, **variables):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "FLODL_"))}
        kept.pop("PYTHONDONTWRITEBYTECODE", None)
        self.folder = folder
        self.err = (folder / "err").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), what, str(folder)],
            stdout=subprocess.PIPE,
            stderr=self.err,
            text=True,
            env=kept | variables,
            cwd=folder,
            start_new_session=True,
        )
        self.family = set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.look()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.err.close()
        for process in self.family:
            if process.is_running():
                process.kill()

    @property
    def said(self):
        return (self.folder / "err").read_text()

    @property
    def run(self):
        return re.search(r"^ddp: run (\S+)$", self.said, re.MULTILINE)[1]

    def look(self):
        """Take note of the processes that there are."""
        if self.process.poll() is None:
            self.family |= set(psutil.Process(self.process.pid).children(recursive=True))

    def part(self, name):
        """The host daemon, or the controller."""
        for child in psutil.Process(self.process.pid).children():
            try:
                if ("flodl.distributed.hostd" in child.cmdline()) == (name == "hostd"):
                    return child
            except psutil.NoSuchProcess:  # or a zombie
                continue
        return None

    def wait_until(self, is_so, limit_s=60):
        give_up = time.monotonic() + limit_s
        while not is_so():
            self.look()
            assert self.process.poll() is None, self.said
            assert time.monotonic() < give_up, self.said
            time.sleep(0.02)

    def wait_for_training(self):
        self.wait_until((self.folder / "trained").exists)
        self.look()

    def end(self, code=0, limit_s=LIMIT_S):
        """What the script printed last, once it and all it started have ended."""
        give_up = time.monotonic() + limit_s
        while self.process.poll() is None and time.monotonic() < give_up:
            self.look()
            time.sleep(0.02)
        assert self.process.returncode == code, self.said
        self.check_nothing_is_left(10)
        out = self.process.stdout.read()
        return json.loads(out.splitlines()[-1]) if out else {}

    def check_nothing_is_left(self, limit_s):
        _, alive = psutil.wait_procs(self.family, timeout=limit_s)
        assert not alive, alive
        assert not [*Path("/dev/shm").glob(f"flodl-{self.run}*")]


def whole(epochs=4):
    return [[SAMPLES, SAMPLES]] * epochs


def test_a_frozen_rank_is_fenced_and_replaced(tmp_path):
    # suspect after 2 s, dead after 6
    with Script("freeze", tmp_path, FLODL_NET_TIMEOUT_SCALE="0.2") as script:
        found = script.end()
        assert found["accounts"] == whole()
        assert found["deaths"] == ["frozen"]
        assert re.search(r"rank\d shows no sign of life", script.said)
        assert re.search(r"rank\d on \S+ is lost: frozen", script.said)
        (death,) = tmp_path.glob("model.rank*.death.json")
        assert json.loads(death.read_text())["cause"] == "frozen"


def test_a_run_that_loses_all_ranks_saves_what_they_shared_and_says_where(tmp_path):
    with Script("all", tmp_path) as script:
        found = script.end()
        assert found["raised"] == "RunFailed"
        assert "all_ranks_lost" in found["text"]
        assert found["deaths"] == ["signal 9", "signal 9"]
        orphan = tmp_path / "model.orphan.fdl"
        assert str(orphan) in found["text"]
        info = checkpoint_info(orphan)
        assert sorted(info.tensors) == ["0.bias", "0.weight", "2.bias", "2.weight"]
        assert info.meta["save_reason"] == "all_ranks_lost"
        assert info.meta["window"] >= 1


def test_a_gpu_error_that_stays_costs_its_process_and_nothing_else(tmp_path):
    with Script("sticky", tmp_path) as script:
        found = script.end()
        assert found["accounts"] == whole()
        assert found["deaths"] == ["cuda"]
        assert "is lost: cuda" in script.said
        assert "raised" not in found


def test_a_rank_that_leaves_without_a_word_has_died(tmp_path):
    with Script("quiet", tmp_path) as script:
        found = script.end()
        assert found["accounts"] == whole()
        assert found["deaths"] == ["exit 0"]


@pytest.mark.parametrize(
    ("what", "cause", "line"),
    [
        ("factory", "LookupError('no such model')", 'raise LookupError("no such model")'),
        ("dataset", "DataWorkerError('reading sample 0 ", "raise BufferError"),
        ("epoch_fn", "ArithmeticError('not this epoch')", "raise ArithmeticError"),
    ],
)
def test_what_user_code_raises_reaches_the_caller_with_its_line(tmp_path, what, cause, line):
    with Script(what, tmp_path) as script:
        found = script.end()
        assert found["raised"] == "RankError"
        assert found["cause"].startswith(cause)
        assert "faulty.py" in found["text"]
        assert line in found["text"]


def test_losses_that_stay_nan_end_the_run_and_name_ranks_steps_and_samples(tmp_path):
    with Script("nan", tmp_path) as script:
        found = script.end()
        assert found["raised"] == "NonFiniteError"
        assert re.search(r"rank\d at step \d+ \(samples \d+-\d+ of epoch \d", found["text"])


def test_observers_that_raise_are_told_of_and_end_nothing(tmp_path):
    with Script("observers", tmp_path) as script:
        found = script.end()
        assert found["accounts"] == whole()
        assert found["epochs"] == [0, 1, 2, 3]
        assert "metrics_fn raised; training goes on" in script.said
        assert "eval_result_fn raised; training goes on" in script.said
        assert "what metrics_fn does not like" in script.said


def test_an_observer_can_stop_the_run(tmp_path):
    with Script("stop", tmp_path) as script:
        found = script.end()
        assert "raised" not in found
        assert found["finished"] in (2, 3)
        assert (tmp_path / "model.fdl").is_file()


def test_a_checkpoint_that_cannot_be_written_is_told_of_and_the_next_one_is(tmp_path):
    with Script("disk", tmp_path) as script:
        found = script.end()
        assert found["accounts"] == whole()
        assert re.search(
            r"checkpoint of epoch 0: .*No space left on device", script.said, re.DOTALL
        )
        assert checkpoint_info(tmp_path / "model.fdl").meta["next_epoch"] == 4


def test_a_place_that_cannot_be_written_to_is_refused_at_the_start(tmp_path):
    with Script("unwritable", tmp_path) as script:
        script.process.wait(LIMIT_S)
        assert script.process.returncode == 1
        place = tmp_path / "file"
        assert f"save_path='{place}/model': {place} cannot be written: " in script.said
        assert "ddp: run" not in script.said


def test_a_second_ctrl_c_ends_everything_at_once(tmp_path):
    with Script("long", tmp_path) as script:
        script.wait_for_training()
        script.process.send_signal(signal.SIGINT)
        script.wait_until(lambda: "press Ctrl-C again to end all processes at once" in script.said)
        pressed = time.monotonic()
        script.process.send_signal(signal.SIGINT)
        script.process.wait(10)
        script.check_nothing_is_left(5)
        assert time.monotonic() - pressed < 5
        assert script.process.returncode in (130, -signal.SIGINT)


def test_a_run_that_is_to_end_does_not_wait_for_a_frozen_rank(tmp_path):
    with Script("freeze", tmp_path, FLODL_NET_TIMEOUT_SCALE="0.2") as script:
        script.wait_until(lambda: frozen(script.family))
        script.process.send_signal(signal.SIGINT)
        found = script.end()
        assert found["raised"] == "RunInterrupted"
        assert "finished" in found
        assert found["deaths"] in (["drain"], ["frozen"])
        assert checkpoint_info(tmp_path / "model.fdl").meta["save_reason"] == "interrupted"


def frozen(processes):
    """Whether one of the processes is stopped."""
    for process in processes:
        try:
            if process.status() == psutil.STATUS_STOPPED:
                return True
        except psutil.NoSuchProcess:
            continue
    return False


@pytest.mark.parametrize("mode", ["cpu_cadence", "gloo_sync"])
def test_a_controller_that_dies_is_started_again_and_no_sample_is_lost(tmp_path, mode):
    with Script("controller", tmp_path, MODE=mode) as script:
        script.wait_for_training()
        script.part("controller").kill()
        found = script.end()
        assert found["accounts"] == whole(20)
        assert found["deaths"] == []
        assert found["epochs"] == [*range(20)]
        assert "the controller ended with status -9; it is started again" in script.said


def test_the_fourth_death_of_a_controller_leaves_what_the_ranks_shared(tmp_path):
    with Script("controllers", tmp_path, FLODL_NET_TIMEOUT_SCALE="0.2") as script:
        script.wait_for_training()
        for deaths in range(1, 5):
            script.part("controller").kill()
            if deaths < 4:
                script.wait_until(lambda: script.said.count("it is started again") == deaths)  # noqa: B023 - waited for here
                script.wait_until(lambda: is_serving(script))
        found = script.end()
        assert found["raised"] == "RunFailed"
        assert "controller_lost: it ended 4 times, at last with status -9" in found["text"]
        orphan = tmp_path / "model.orphan.fdl"
        assert str(orphan) in found["text"]
        assert checkpoint_info(orphan).meta["save_reason"] == "controller_lost"


def is_serving(script):
    """Whether there is a controller that has taken its port over."""
    controller = script.part("controller")
    try:
        return controller is not None and controller.num_threads() > 2
    except psutil.NoSuchProcess:
        return False


def test_a_run_whose_launcher_never_comes_back_saves_and_ends(tmp_path):
    with Script("long", tmp_path) as script:
        script.wait_for_training()
        script.process.kill()
        script.process.wait()
        script.check_nothing_is_left(60)
        assert (tmp_path / "model.fdl").is_file()


def test_ranks_that_lose_launcher_and_controller_save_and_leave_nothing(tmp_path):
    with Script("long", tmp_path, FLODL_NET_TIMEOUT_SCALE="0.2") as script:
        script.wait_for_training()
        controller = script.part("controller")
        script.process.kill()
        script.process.wait()
        controller.kill()
        script.check_nothing_is_left(60)
        orphan = tmp_path / "model.orphan.fdl"
        assert checkpoint_info(orphan).meta["save_reason"] == "controller_lost"
