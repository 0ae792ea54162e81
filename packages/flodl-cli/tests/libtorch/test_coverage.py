import pytest

from flodl_cli.libtorch.coverage import covers, cuda_token, parse_arch, uncovered


@pytest.mark.parametrize(
    ("token", "gpu", "expected"),
    [
        ("8.6", "sm_86", True),
        ("8.0", "sm_86", True),
        ("8.6", "sm_80", False),
        ("7.5", "sm_50", False),  # the text 5 is in 7.5
        ("5.0", "sm_75", False),
        ("9.0", "sm_100", False),
        ("9.0+PTX", "sm_120", True),
        ("9.0+PTX", "sm_86", False),
        ("12.0a", "sm_120", True),
        ("gfx942", "gfx942", True),
        ("gfx90a", "gfx908", False),
        ("8.6", "gfx942", False),
        ("nonsense", "sm_86", False),
    ],
)
def test_token_covers_its_major_and_higher_minors(token, gpu, expected):
    assert covers(token, gpu) is expected


def test_uncovered_gpus_are_named():
    assert uncovered(("7.5", "8.0"), ["sm_86", "sm_61", "sm_120"]) == ["sm_61", "sm_120"]


def test_tokens_are_read_and_written():
    assert parse_arch("12.0f+PTX") == (12, 0)
    assert parse_arch("12") is None
    assert cuda_token("sm_120") == "12.0"
