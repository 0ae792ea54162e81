import pytest

from flodl.core.errors import FlowError
from flodl.graph.naming import check_argument, check_key, check_name, suggestion


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a.b", "ä", None, 3, "a\n"])
def test_illegal_names_are_refused_with_their_value(name):
    with pytest.raises(FlowError) as caught:
        check_name(name, "tag")
    assert str(caught.value).startswith(f"tag: {name!r} is no legal name")


def test_keywords_are_no_arguments_but_may_be_tags():
    assert check_name("class", "tag") == "class"
    with pytest.raises(FlowError, match="by name"):
        check_argument("class", "input")


@pytest.mark.parametrize("key", ["a", "0", "encoder.layer.0", "A_1.b"])
def test_keys_are_names_and_numbers_joined_by_dots(key):
    assert check_key(key, "through") == key


def test_suggestion_prefers_close_matches():
    assert suggestion("hiden", ["hidden", "other"]) == "did you mean 'hidden'?"
    assert suggestion("zzz", ["a", "b"]) == "known: a, b"
    assert suggestion("zzz", []) == "there are none"
