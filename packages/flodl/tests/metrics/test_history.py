import copy
import math

from flodl.metrics.history import History


def test_weighted_mean_of_each_buffer_is_appended():
    history = History()
    history.add("a", 1.0, 3.0)
    history.add("a", 5.0)
    history.add("b", 2.0)
    assert history.flush(None, list)
    assert history.latest() == {"a": 2.0, "b": 2.0}
    assert not history.flush(None, list)
    assert history.flush_count == 1


def test_values_are_read_together_in_order():
    history, seen = History(), []
    for name, value in (("a", 1.0), ("b", 2.0), ("a", 3.0)):
        history.add(name, value)

    def read(values):
        seen.append(list(values))
        return [float(value) for value in values]

    history.flush(["a", "b", "unknown"], read)
    assert seen == [[1.0, 3.0, 2.0]]
    assert history.series() == {"a": [2.0], "b": [2.0]}


def test_weights_of_zero_give_no_number():
    history = History()
    history.add("a", 1.0, 0.0)
    history.flush(None, list)
    assert math.isnan(history.latest()["a"])


def test_copy_keeps_series_and_drops_what_is_pending():
    history = History()
    history.add("a", 1.0)
    history.flush(None, list)
    history.add("a", 7.0)
    copied = copy.deepcopy(history)
    assert copied.trend("a").values == [1.0]
    assert copied.pending("a") == []
    copied.add("a", 2.0)
    assert history.pending("a") == [7.0]


def test_load_replaces_everything():
    history = History()
    history.add("old", 1.0)
    history.load({"a": [1, 2]}, 2)
    assert history.names() == ["a"]
    assert history.pending("old") == []
    history.reset(["a", "unknown"])
    assert history.names() == []
