"""New heads trained on two ranks, each a process of its own, and captured on a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flodl_hf import AutoModelForSequenceClassification, HfTokenizer
from flodl_hf.export import export_checkpoint
from flodl_hf.verify.export import verify_export

PROGRAMS = Path(__file__).parent / "programs"


def printed(folder, name, *words):
    """Run a program in a folder and return the JSON that it prints."""
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environ.pop("PYTEST_CURRENT_TEST", None)
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / name), *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
        env=environ,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "task", "score"),
    [("albert", "tokens", 0.97), ("bert", "answers", 0.9), ("albert", "words", 1.0)],
)
def test_every_other_head_learns_on_two_ranks(talking, tmp_path, family, task, score):
    folder, _ = talking(family, "base")
    found = printed(tmp_path, "heads.py", folder, task, 2)
    assert found["score"] >= score
    assert found["losses"][-1] < 0.6 * found["losses"][0]


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("family", "task", "score"),
    [
        ("albert", "texts", 0.95),
        ("albert", "tokens", 0.97),
        ("bert", "answers", 0.9),
        ("albert", "words", 1.0),
    ],
)
def test_every_head_learns_with_captured_steps(talking, tmp_path, family, task, score):
    folder, _ = talking(family, "base")
    found = printed(tmp_path, "heads.py", folder, task, 0)
    assert found["score"] >= score
    assert found["losses"][-1] < 0.6 * found["losses"][0]


@pytest.mark.slow
def test_a_classifier_of_texts_learns_on_two_ranks(talking, tmp_path):
    folder, _ = talking("bert", "base")
    found = printed(tmp_path, "finetune.py", folder, tmp_path)
    hashes = (tmp_path / "hashes").read_text().split()
    assert len(hashes) >= 3, "each rank and the caller build the head"
    assert len(set(hashes)) == 1, "a new head is the same on every rank"
    assert found["accounts"] == [[240, 240]] * 20
    assert found["deaths"] == 0
    assert found["right"] >= 0.95
    assert found["losses"][-1] < 0.5 * found["losses"][0]

    export_checkpoint(tmp_path / "m.fdl", tmp_path / "out")
    assert verify_export(tmp_path / "out").passed
    tokenizer = HfTokenizer.from_pretrained(folder)
    again = AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "out", tokenizer=tokenizer
    )
    assert again.labels == ("animal", "place")
    [(label, score), _] = again.predict(["the quick fox is here"])[0]
    assert label == found["scores"][0][0]
    assert score == pytest.approx(found["scores"][0][1], abs=1e-5)
