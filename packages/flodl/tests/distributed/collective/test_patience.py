import threading

import pytest

from flodl.distributed.collective.errors import CollectiveError, Interrupted
from flodl.distributed.collective.patience import call_patiently, never, poll_until


def test_poll_ends_when_done_when_interrupted_and_when_late():
    answers = iter([False, False, True])
    assert poll_until(lambda: next(answers), timeout_s=10, interrupted=never)
    assert not poll_until(lambda: False, timeout_s=10, interrupted=lambda: True)
    assert not poll_until(lambda: False, timeout_s=0.01, interrupted=never)


def test_what_is_done_at_once_is_never_interrupted():
    assert poll_until(lambda: True, timeout_s=0, interrupted=lambda: True)


def test_a_patient_call_returns_or_raises_what_the_function_does():
    def call(function):
        return call_patiently(function, what="test", timeout_s=10, interrupted=never)

    assert call(lambda: 7) == 7
    assert call(lambda: None) is None
    with pytest.raises(ZeroDivisionError):
        call(lambda: 1 / 0)


def test_a_call_that_is_given_up_goes_on_by_itself():
    may_end = threading.Event()
    options = {"what": "test", "interrupted": never}
    with pytest.raises(Interrupted, match="test: given up"):
        call_patiently(may_end.wait, **options | {"timeout_s": 10, "interrupted": lambda: True})
    with pytest.raises(CollectiveError, match=r"test: not done after 0\.01 s"):
        call_patiently(may_end.wait, **options, timeout_s=0.01)
    may_end.set()
