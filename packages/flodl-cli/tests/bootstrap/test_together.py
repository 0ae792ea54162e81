"""Two ./fdl at once, stale locks, and interrupts."""

import fcntl
import signal

import pytest


def test_two_starts_at_once_sync_once(checkout):
    checkout.add_uv()
    checkout.block_uv()
    first = checkout.start("one")
    checkout.wait_for(checkout.state / "uv-started")
    second = checkout.start("two")
    assert "waiting for another fdl" in second.stderr.readline()
    checkout.release_uv()
    for process, word in ((first, "one"), (second, "two")):
        output, _ = process.communicate(timeout=30)
        assert process.returncode == 0
        assert f"word: {word}" in output
    assert len(checkout.calls("sync")) == 1


def test_lock_held_by_nobody_is_no_hindrance(checkout):
    checkout.add_uv()
    checkout.write(".fdl/lock", "12345\n")
    assert checkout.run().returncode == 0


def test_lock_is_not_handed_to_the_program_that_is_run(checkout):
    checkout.add_uv()
    assert checkout.run().returncode == 0
    with (checkout.root / ".fdl/lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_interrupted_sync_ends_with_the_code_of_the_signal(checkout, number, code):
    checkout.add_uv()
    checkout.block_uv()
    process = checkout.start("x")
    checkout.wait_for(checkout.state / "uv-started")
    process.send_signal(number)
    output, talk = process.communicate(timeout=30)
    assert process.returncode == code
    assert output == ""
    assert "fdl: interrupted" in talk
    checkout.release_uv()
    assert checkout.run("x").returncode == 0


def test_interrupted_install_of_uv_does_not_poison_the_next_start(checkout):
    checkout.add_python()
    checkout.block_uv()
    process = checkout.start("x")
    checkout.wait_for(checkout.state / "uv-started")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert list((checkout.root / ".fdl").glob("uv*")) == []
    checkout.release_uv()
    assert checkout.run("x").returncode == 0
