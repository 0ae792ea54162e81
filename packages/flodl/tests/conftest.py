"""Fixtures for all tests of flodl: one thread, and nothing left behind."""

import os
import threading

import pytest

KEPT_BY_TORCH = {"InductorSubproc", "subproc_worker_timer"}  # torch's compiler keeps its workers
SET_BY_OTHERS = {  # pytest; torch's compiler
    "PYTEST_CURRENT_TEST",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "TRITON_PTXAS_PATH",
}


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def no_leaks():
    """Fail a test that leaves a thread running or changes the environment."""
    threads, environment = set(threading.enumerate()), dict(os.environ)
    yield
    for thread in set(threading.enumerate()) - threads:
        thread.join(timeout=5)
    left = {thread.name for thread in set(threading.enumerate()) - threads if thread.is_alive()}
    left -= KEPT_BY_TORCH
    assert not left, f"threads left running: {sorted(left)}"
    changed = {
        name
        for name in environment.keys() | os.environ.keys()
        if environment.get(name) != os.environ.get(name) and name not in SET_BY_OTHERS
    }
    assert not changed, f"the test changed the environment: {sorted(changed)}"


@pytest.fixture(autouse=True)
def fresh_warnings():
    """Let each test see a warning that is logged once per process."""
    from flodl.core import log

    log._seen.clear()
