import pytest

from ddp_bench.choice import split_names, unknown_name
from ddp_bench.errors import UsageError


def test_comma_list_keeps_order_and_drops_repeats():
    assert split_names("mlp, lenet,mlp") == ["mlp", "lenet"]


@pytest.mark.parametrize("text", ["", "mlp,", ",mlp", "mlp,,lenet", " "])
def test_missing_name_in_a_list_is_misuse(text):
    with pytest.raises(UsageError, match="a name is missing"):
        split_names(text)


def test_unknown_name_lists_the_legal_ones_and_the_nearest():
    error = unknown_name("model", "LeNt", ["logistic", "mlp", "lenet"])
    assert str(error) == (
        "unknown model 'LeNt'; models: logistic, mlp, lenet\n"
        "hint: did you mean lenet? '--list' describes each"
    )


def test_nothing_is_guessed_for_a_name_that_is_near_nothing():
    assert "did you mean" not in str(unknown_name("model", "qqqq", ["logistic", "mlp"]))
