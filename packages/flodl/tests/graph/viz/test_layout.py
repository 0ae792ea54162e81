import random
from itertools import pairwise

from flodl.graph.viz.heat import heat
from flodl.graph.viz.order import order_layers
from flodl.graph.viz.place import place_columns, spines


def test_longest_way_decides_the_layer_and_sources_lie_by_their_readers():
    layered = order_layers(["a", "b", "c", "late"], [("a", "b"), ("b", "c"), ("late", "c")])
    assert layered.layer_of["c"] == 2
    assert layered.layer_of["late"] == 1


def test_crossings_are_removed_where_possible():
    arrows = [("a", "y"), ("b", "x"), ("s", "a"), ("s", "b"), ("x", "t"), ("y", "t")]
    layered = order_layers(["s", "a", "b", "x", "y", "t"], arrows)
    first, second = layered.layers[1], layered.layers[2]
    assert (first[0], second[0]) in {("a", "y"), ("b", "x")}


def test_side_arrows_share_a_trunk():
    arrows = [("m", "x"), ("x", "y"), ("y", "z"), ("m", "y"), ("m", "z")]
    is_side = [False, False, False, True, True]
    layered = order_layers(["m", "x", "y", "z"], arrows, is_side)
    assert layered.chains[3][1] == layered.chains[4][1]


def test_chains_are_straight_and_nothing_overlaps():
    rng = random.Random(0)
    for _ in range(20):
        names = [str(number) for number in range(14)]
        arrows = [
            (names[a], names[b])
            for b in range(1, 14)
            for a in rng.sample(range(b), min(b, rng.randint(1, 2)))
        ]
        layered = order_layers(names, arrows)
        widths = {name: 6.0 if name.startswith("\0") else 60.0 for name in layered.layer_of}
        columns = place_columns(layered, widths, 20.0)
        for layer in layered.layers:
            for left, right in pairwise(layer):
                apart = columns[right] - columns[left]
                assert apart >= (widths[left] + widths[right]) / 2 + 20 - 1e-6
    chain = order_layers(list("abcd"), [("a", "b"), ("b", "c"), ("c", "d")])
    columns = place_columns(chain, dict.fromkeys("abcd", 50.0), 20.0)
    assert len({round(x, 3) for x in columns.values()}) == 1


def test_what_only_leads_on_stands_in_one_column_beside_its_skips():
    names = ["s", "a", "p", "b", "q", "t"]
    arrows = [("s", "a"), ("a", "p"), ("s", "p"), ("p", "b"), ("b", "q"), ("p", "q"), ("q", "t")]
    layered = order_layers(names, arrows)
    assert spines(layered) == [names]
    widths = {name: 6.0 if name.startswith("\0") else 60.0 for name in layered.layer_of}
    columns = place_columns(layered, widths, 20.0)
    assert len({round(columns[name], 3) for name in names}) == 1
    split = order_layers(list("sabt"), [("s", "a"), ("s", "b"), ("a", "t"), ("b", "t")])
    assert spines(split) == []


def test_heat_goes_from_green_over_yellow_to_red():
    assert [heat(share) for share in (0, 0.5, 1)] == ["#27ae60", "#f39c12", "#e74c3c"]
