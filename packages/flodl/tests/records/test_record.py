import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl.core.paths import is_within, parent_path
from flodl.records.record import (
    Record,
    _standard_encoder,
    clean_text,
    delivers,
    encode_json,
    is_metric_key,
)

paths = st.lists(st.sampled_from(["a", "b", "rank1", "rank10"]), max_size=4).map(
    lambda parts: "/".join(["root", *parts])
)
kinds = st.sampled_from(["meta", "node", "event", "log", "unheard-of"])


@given(paths, kinds, paths, st.none() | paths)
def test_delivery_follows_the_scope_rule(scope, kind, path, alerts):
    got = delivers(scope, kind, path, alerts=alerts)
    if kind == "meta":
        assert got
    elif kind == "node":
        assert got == (path == scope or parent_path(path) == scope)
    else:
        wide = alerts is not None and is_within(alerts, path)
        assert got == (is_within(scope, path) or wide)


def test_a_record_without_a_path_reaches_nobody_unless_it_is_meta():
    assert not delivers("root", "event", None)
    assert delivers("root/x", "meta", None)


@pytest.mark.parametrize("encode", [encode_json, _standard_encoder()], ids=["chosen", "standard"])
def test_lines_are_strict_json_in_one_line(encode):
    body = {"detail": "a\nb\u2028</script>", "n": 1.5, "none": None}
    line = encode(body)
    assert b"\n" not in line
    assert json.loads(line) == body
    assert Record(1, "event", "root", line).body() == body


@pytest.mark.parametrize("encode", [encode_json, _standard_encoder()], ids=["chosen", "standard"])
def test_a_line_that_is_kept_holds_no_more_than_itself(encode):
    body = {f"k{key}": key + 0.5 for key in range(16)}
    tracemalloc.start()
    try:
        lines = [encode(body) for _ in range(200)]
        held = tracemalloc.get_traced_memory()[0] / len(lines)
    finally:
        tracemalloc.stop()
    assert held < len(lines[0]) + 128


def test_the_standard_encoder_refuses_nan():
    with pytest.raises(ValueError, match="not JSON compliant"):
        _standard_encoder()({"x": float("nan")})


@pytest.mark.parametrize("key", ["", "a" * 129, "a\n", "a\x00", "\u202e"])
def test_names_that_cannot_be_shown_are_no_metric_keys(key):
    assert not is_metric_key(key)


@pytest.mark.parametrize("key", ["loss", "encoder.scan.loss", "</script>", "ß", "a" * 128])
def test_other_names_are(key):
    assert is_metric_key(key)


def test_texts_are_cut_and_have_no_lone_surrogates():
    assert clean_text("a" * 20_000) == "a" * 10_000 + "..."
    assert encode_json(clean_text("\ud800x")) == b'"?x"'
