from flodl.distributed.serving.doorkeeper import Doorkeeper, Verdict


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_the_right_token_is_welcome_and_every_other_header_wrong():
    door = Doorkeeper("secret")
    assert door.judge("a", "Bearer secret") is Verdict.WELCOME
    assert door.judge("a", "bearer secret ") is Verdict.WELCOME
    for header in ("", "secret", "Basic secret", "Bearer", "Bearer secre", "Bearer sécret"):
        assert door.judge("b", header) is Verdict.WRONG


def test_ten_wrong_tokens_in_a_minute_bar_the_address_for_five():
    clock = Clock()
    door = Doorkeeper("secret", clock=clock)
    for _ in range(10):
        assert door.judge("bad", "Bearer x") is Verdict.WRONG
        clock.now += 1.0
    assert door.judge("bad", "Bearer secret") is Verdict.BARRED
    assert door.judge("good", "Bearer secret") is Verdict.WELCOME
    clock.now += 298.0
    assert door.judge("bad", "Bearer secret") is Verdict.BARRED
    clock.now += 2.0
    assert door.judge("bad", "Bearer secret") is Verdict.WELCOME


def test_wrong_tokens_spread_over_more_than_a_minute_bar_nobody():
    clock = Clock()
    door = Doorkeeper("secret", clock=clock)
    for _ in range(40):
        assert door.judge("slow", "Bearer x") is Verdict.WRONG
        clock.now += 7.0


def test_a_right_token_forgets_the_wrong_ones_before():
    door = Doorkeeper("secret")
    for _ in range(5):
        for _ in range(9):
            door.judge("clumsy", "Bearer x")
        assert door.judge("clumsy", "Bearer secret") is Verdict.WELCOME


def test_addresses_that_guess_do_not_fill_the_memory():
    door = Doorkeeper("secret")
    for number in range(6000):
        door.judge(str(number), "Bearer x")
    assert len(door._failures) <= 4096
