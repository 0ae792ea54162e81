from __future__ import annotations

import sys

import pytest

from ddp_bench.scaling import torchft_arms


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchft", None)
    monkeypatch.delitem(sys.modules, "torchft.local_sgd", raising=False)
    reason = torchft_arms.missing()
    assert reason is not None
    assert reason.startswith("torchft does not load: ")
