import pytest

from flodl.core.paths import RecordTier
from flodl.records.board import RunBoard
from flodl.records.feed import RankFeed
from flodl.records.hardware import Card, hardware_text, processor_name
from flodl.records.telemetry import RankTelemetry

GIB = 1 << 30
H200, GTX = Card(0, "NVIDIA H200", 141 * GIB), Card(1, "GTX 1060", 6 * GIB)


@pytest.mark.parametrize(
    ("cards", "text"),
    [
        ([], ""),
        ([H200], "NVIDIA H200 (141GB)"),
        ([H200, GTX, H200], "2x NVIDIA H200 (141GB) + GTX 1060 (6GB)"),
        ([Card(0, "card", None)], "card"),
    ],
)
def test_equal_cards_are_counted(cards, text):
    assert hardware_text(cards) == text


def test_the_processor_comes_first_with_what_may_be_used_of_it():
    text = hardware_text([H200], threads=32, ram_total=64 * GIB)
    assert text == f"{processor_name()} (32 threads, 64GB) | NVIDIA H200 (141GB)"
    assert processor_name()


def test_viewers_are_told_of_hardware_once_it_is_known_and_when_it_changes():
    board = RunBoard()
    board.set_hardware("one", [H200])
    before = board.tree.seq
    board.set_hardware("one", [H200])
    assert board.tree.seq == before
    assert board.api_meta()["hardware"] == "one"
    assert board.api_meta()["gpus"] == [{"dev": 0, "name": "NVIDIA H200", "vram_total": 141 * GIB}]
    board.set_hardware("two", [H200, H200])
    assert board.tree.meta.body()["run"]["hardware"] == "two"


def test_the_hardware_of_many_ranks_is_that_of_the_living():
    board = RunBoard()
    feed = RankFeed(board, RecordTier(["a", "b"]))
    for rank, label in enumerate(("NVIDIA H200", "GTX 1060")):
        feed.join(rank, "ab"[rank], label=label, device=0)
    feed.tick()
    assert board.api_meta()["hardware"] is None
    for rank, total in enumerate((141 * GIB, 6 * GIB)):
        feed.resources(RankTelemetry(rank=rank, res={"vram_total": total}))
    feed.tick()
    assert board.api_meta()["hardware"] == "NVIDIA H200 (141GB) + GTX 1060 (6GB)"
    feed.lose(1, "gone")
    feed.tick()
    assert board.api_meta()["hardware"] == "NVIDIA H200 (141GB)"
