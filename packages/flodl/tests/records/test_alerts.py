from hypothesis import given
from hypothesis import strategies as st

from flodl.records.alerts import AlertLane


def occur(lane, name="io", path="root", now=0.0, detail="x"):
    return lane.occur(name, path, "warn", detail, now=now, ts=int(now * 1000))


def test_the_first_occurrence_is_told_at_once():
    told = occur(AlertLane())
    assert [(t.name, t.times, t.total) for t in told] == [("io", 1, 1)]


def test_repeats_within_ten_seconds_are_told_together():
    lane = AlertLane()
    occur(lane, now=0)
    assert [occur(lane, now=n) for n in (1, 2, 3)] == [[], [], []]
    assert lane.due(9.9) == []
    assert [(t.times, t.total) for t in lane.due(10.0)] == [(3, 4)]
    assert lane.due(30.0) == []


def test_another_path_is_another_alert():
    lane = AlertLane()
    occur(lane)
    assert len(occur(lane, path="root/rank1")) == 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 5)), max_size=60))
def test_counts_always_add_up_to_the_true_number(happenings):
    lane, now, told, truth = AlertLane(), 0.0, [], {}
    for name, wait in happenings:
        now += wait
        told += lane.due(now)
        told += occur(lane, name=name, now=now)
        truth[name] = truth.get(name, 0) + 1
    told += lane.due(now, everything=True)
    found = {}
    for what in told:
        found[what.name] = found.get(what.name, 0) + what.times
        assert what.total == found[what.name]
    assert found == truth


def test_the_least_recently_active_make_room_and_the_loss_is_told():
    lane = AlertLane(limit=4)
    told = []
    for number in range(6):
        told += occur(lane, name=f"c{number}", now=float(number))
    live = [alert["class"] for alert in lane.live()]
    assert len(live) == 4
    assert live[-1] == "c5"
    assert "overflow" in live
    assert "c0" not in live
    assert [t.name for t in told].count("overflow") == 1
    assert {t.name for t in told} >= {f"c{n}" for n in range(6)}


def test_an_evicted_alert_leaves_no_repeat_untold():
    lane = AlertLane(limit=2)
    occur(lane, name="a")
    occur(lane, name="a", now=1)
    told = occur(lane, name="b", now=2) + occur(lane, name="c", now=3)
    assert ("a", 1, 2) in [(t.name, t.times, t.total) for t in told]
