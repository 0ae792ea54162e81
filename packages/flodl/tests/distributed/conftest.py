"""Ranks for tests of the data plane: threads of this process, or processes of a fork server."""

import multiprocessing
import pickle
import queue
import runpy
import threading
import time
from pathlib import Path

import pytest

LIMIT_S = 60
ENTRY = str(Path(__file__).with_name("process_rank.py"))


@pytest.fixture
def thread_ranks():
    """Run ``body(rank)`` on n threads and return what each gave, by rank."""

    def run(count, body, limit_s=LIMIT_S):
        results, errors = [None] * count, []

        def rank(k):
            try:
                results[k] = body(k)
            except BaseException as error:
                errors.append((k, error))

        threads = [
            threading.Thread(target=rank, args=(k,), name=f"rank{k}", daemon=True)
            for k in range(count)
        ]
        deadline = time.monotonic() + limit_s
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive() and time.monotonic() < deadline and not errors:
                thread.join(0.05)
        if errors:
            grace = time.monotonic() + 10
            for thread in threads:
                thread.join(max(0.0, grace - time.monotonic()))
            rank, error = errors[0]
            error.add_note(f"raised by rank {rank}")
            raise error
        assert not any(thread.is_alive() for thread in threads), "ranks hang"
        return results

    return run


@pytest.fixture(scope="session")
def fork_server():
    """A multiprocessing context whose children find torch loaded."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed", "torch._dynamo"])
    return context


@pytest.fixture
def process_ranks(fork_server):
    """Run ``body(rank, *args)`` in n processes and return what each gave, by rank.

    ``body`` is a function of a test file, by name; a rank that is killed on purpose gives ``None``.
    """
    processes = []

    def run(count, body, *args, limit_s=120, may_die=()):
        results = fork_server.Queue()
        body_at = (body.__code__.co_filename, body.__name__)
        ours = [
            fork_server.Process(
                target=runpy.run_path,
                args=(ENTRY, {"task": (body_at, k, args, results)}),
                daemon=True,
            )
            for k in range(count)
        ]
        processes.extend(ours)
        for process in ours:
            process.start()
        given = [None] * count
        missing = set(range(count)) - set(may_die)
        deadline = time.monotonic() + limit_s
        while missing:
            assert time.monotonic() < deadline, f"no answer from ranks {sorted(missing)}"
            try:
                k, value, trace = results.get(timeout=0.2)
            except queue.Empty:
                dead = {k for k in missing if not ours[k].is_alive()}
                assert not dead or not results.empty(), f"ranks died: {sorted(dead)}"
                continue
            assert trace is None, f"rank {k} raised\n{trace}"
            given[k] = pickle.loads(value)
            missing.discard(k)
        for process in ours:
            process.join(10)
        results.close()
        results.join_thread()
        return given

    yield run
    for process in processes:
        if process.is_alive():
            process.kill()
        process.join(10)
        process.close()
