import pytest

from flodl_cli.context.flags import GLOBAL_FLAGS, scan
from flodl_cli.errors import UsageError


def test_flags_are_taken_from_any_place_before_the_first_separator():
    line = scan(["-v", "bench", "--gpus", "0", "quick", "--explain", "--", "-q", "--", "--help"])
    assert line.words == ("bench", "quick")
    assert line.tail == ("-q", "--", "--help")
    assert line.given == ("-v", "--gpus", "0", "--explain")
    assert line.flags.verbosity == 2
    assert line.flags.explain
    assert not line.flags.help


def test_no_separator_differs_from_an_empty_tail():
    assert scan(["test"]).tail is None
    assert scan(["test", "--"]).tail == ()


@pytest.mark.parametrize(
    ("argv", "level"),
    [
        ([], None),
        (["-v"], 2),
        (["-vv"], 3),
        (["-vvv"], 4),
        (["-q"], 0),
        (["--quiet"], 0),
        (["-q", "-vv"], 3),
        (["-vv", "--quiet"], 0),
    ],
)
def test_last_verbosity_wins(argv, level):
    assert scan(argv).flags.verbosity == level


def test_color_flags():
    assert scan([]).flags.color is None
    assert scan(["--ansi"]).flags.color is True
    assert scan(["--no-ansi"]).flags.color is False


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["--env", "ci"], "ci"),
        (["--env=ci"], "ci"),
        (["@ci"], "ci"),
        (["@ci", "--env", "ci"], "ci"),
        ([], None),
    ],
)
def test_overlay_has_three_spellings(argv, name):
    assert scan(argv).flags.overlay == name


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--env"], "--env needs a value"),
        (["--env", "--explain"], "--env needs a value"),
        (["--env="], "--env names no overlay"),
        (["@"], "@ names no overlay"),
        (["@a", "@b"], "@ is given twice: 'a' and 'b'"),
        (["--env", "a", "--env=a"], "--env is given twice: 'a' and 'a'"),
        (["@b", "--env", "a"], "two overlays are asked for: a and b"),
        (["--gpus"], "--gpus needs a value"),
        (["--gpus", "0", "--gpus", "1"], "--gpus is given twice: '0' and '1'"),
        (["--ansi", "--no-ansi"], "--ansi and --no-ansi contradict each other"),
    ],
)
def test_misuse_is_an_error(argv, message):
    with pytest.raises(UsageError) as caught:
        scan([*argv, "--", "--env"])
    assert caught.value.message == message
    assert caught.value.exit_code == 2


def test_words_that_only_look_like_flags_stay_words():
    assert scan(["bench", "-x", "--epochs=3", "-vx", "a@b", "-"]).words == (
        "bench",
        "-x",
        "--epochs=3",
        "-vx",
        "a@b",
        "-",
    )


def test_every_flag_in_the_help_is_understood():
    for spelling, _ in GLOBAL_FLAGS:
        for flag in spelling.replace(" SPEC", "=none").replace("NAME", "x").split(", "):
            assert scan(flag.split()).words == ()


def test_version_of_torch_is_left_to_the_libtorch_commands():
    line = scan(["libtorch", "download", "--version", "2.12.0"])
    assert line.words == ("libtorch", "download", "--version", "2.12.0")
    assert not line.flags.version
    assert scan(["libtorch", "--version"]).flags.version
    assert scan(["test", "--version"]).flags.version
