import pytest

from flodl_cli.names import near


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("tset", ["test"]),
        ("tes", ["test"]),
        ("ddpbench", ["ddp-bench"]),
        ("xyz", []),
        ("lnt", ["lint"]),
        ("test", ["test"]),
        ("", []),
    ],
)
def test_near_names_are_within_two_edits(word, expected):
    assert near(word, ["test", "lint", "ddp-bench", "docs"]) == expected


def test_near_names_are_three_at_most_and_nearest_first():
    assert near("aaaa", ["aabb", "aaab", "aaaa", "baab", "aabc"]) == ["aaaa", "aaab", "aabb"]


def test_short_word_is_not_near_everything():
    assert near("qz", ["ci", "go", "x"]) == []
