import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl.core.paths import (
    RecordPathError,
    RecordTier,
    check_record_path,
    device_path,
    is_record_path,
    is_within,
    natural_key,
    parent_path,
    segment_of,
)


@pytest.mark.parametrize("path", ["root", "root/a", "root/host-b/rank1", "root/10.0.0.5/rank0"])
def test_record_paths_are_recognized(path):
    assert check_record_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "Root",
        "root/",
        "root//a",
        "root/..",
        "root/.hidden",
        "root/-a",
        "/root",
        "root/a b",
        "root/a\n",
        "root\n",
        "root/a\x00",
        "root/é",
        "root/" + "a" * 65,
        "root" + "/a" * 8,
        "root/%2e%2e",
        "root" + "/" + "a" * 600,
    ],
)
def test_other_texts_are_refused_with_their_value(path):
    assert not is_record_path(path)
    with pytest.raises(RecordPathError, match="record path"):
        check_record_path(path)


def test_scopes_are_compared_by_whole_segments():
    assert is_within("root/rank1", "root/rank1")
    assert is_within("root/rank1", "root/rank1/gpu0")
    assert not is_within("root/rank1", "root/rank10")
    assert not is_within("root/rank1", "root")


def test_ranks_sort_by_their_number():
    paths = ["root/rank10", "root/a", "root", "root/rank2", "root/rank2/x", "root/a/rank1"]
    assert sorted(paths, key=natural_key) == [
        "root",
        "root/a",
        "root/a/rank1",
        "root/rank2",
        "root/rank2/x",
        "root/rank10",
    ]


def test_the_parent_of_the_root_is_none():
    assert parent_path("root") is None
    assert parent_path("root/a/b") == "root/a"


@pytest.mark.parametrize(
    ("name", "segment"),
    [("Node A!", "Node-A-"), ("__x", "x"), ("ü", "host"), ("", "host"), ("a" * 80, "a" * 64)],
)
def test_host_names_become_segments(name, segment):
    assert segment_of(name) == segment


@given(st.lists(st.text(max_size=90), min_size=2, max_size=12, unique=True))
def test_every_host_gets_a_path_of_its_own(hosts):
    tier = RecordTier(hosts)
    paths = [tier.path(0, host) for host in hosts]
    assert len(set(paths)) == len(hosts)
    assert all(is_record_path(path) for path in paths)


def test_colliding_hosts_are_numbered():
    tier = RecordTier(["a b", "a-b", "a/b"])
    assert [tier.host_path(h) for h in ("a b", "a-b", "a/b")] == [
        "root/a-b",
        "root/a-b-2",
        "root/a-b-3",
    ]


def test_the_shape_follows_the_start_of_the_run():
    assert RecordTier(["a"]).path(0, "a") == "root"
    assert RecordTier(["a", "a"]).path(1, "a") == "root/rank1"
    assert RecordTier(["a", "b"]).path(1, "b") == "root/b/rank1"
    assert RecordTier(["a"], clustered=True).path(0, "a") == "root/a/rank0"
    assert RecordTier(["a"], elastic=True).path(0, "a") == "root/rank0"
    assert device_path(3) == "root/gpu3"


def test_a_member_that_joins_later_is_placed_by_the_same_shape():
    tier = RecordTier(["a", "b"])
    assert tier.path(7, "c") == "root/c/rank7"
