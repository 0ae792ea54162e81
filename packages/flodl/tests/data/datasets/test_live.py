"""The published files, fetched from where they are published; run by ``-m live``."""

from __future__ import annotations

from pathlib import Path

import pytest

from flodl.data import datasets


@pytest.mark.live
def test_the_smallest_published_set_is_fetched_checked_and_read(tmp_path: Path) -> None:
    text = datasets.load("shakespeare", split="train", root=tmp_path, seq_len=64)
    assert text.vocab_size == 65
    assert (tmp_path / "shakespeare" / "input.txt").stat().st_size == 1_115_394
    again = datasets.load("shakespeare", split="train", root=tmp_path, seq_len=64, offline=True)
    assert len(again) == len(text)
