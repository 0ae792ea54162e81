import sys

import pytest

from ddp_bench.loading import __main__ as loading
from ddp_bench.overhead import dashboard
from ddp_bench.scaling import __main__ as scaling
from ddp_bench.speed import __main__ as program


@pytest.mark.parametrize(
    ("word", "suite"), [("loader", loading), ("dashboard", dashboard), ("scaling", scaling)]
)
def test_first_word_starts_another_suite(word, suite, monkeypatch):
    seen = []
    monkeypatch.setattr(suite, "main", lambda words: seen.append(words) or 3)
    monkeypatch.setattr(sys, "argv", ["bench", word, "--gate"])
    assert program.main() == 3
    assert seen == [["--gate"]]


def test_other_words_are_the_speed_suites(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bench", "--help"])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 0
    assert "fdl bench" in capsys.readouterr().out
