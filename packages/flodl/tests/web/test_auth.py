import pytest

from flodl.web.auth import Auth, is_loopback, new_token


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("192.168.1.2", False),
        ("example.org", False),
    ],
)
def test_loopback_addresses_are_recognized(host, loopback):
    assert is_loopback(host) is loopback


def test_tokens_are_long_and_new_each_time():
    assert len({new_token() for _ in range(10)}) == 10
    assert len(new_token()) >= 32


def test_failures_are_forgotten_after_a_minute_and_counted_by_peer():
    now = [0.0]
    auth = Auth("x", clock=lambda: now[0])
    for _ in range(10):
        assert not auth.knows("y", "peer")
    assert auth.is_barred("peer")
    assert not auth.is_barred("other")
    now[0] = 61.0
    assert not auth.is_barred("peer")
    assert auth.knows("x", "peer")


def test_the_memory_of_peers_is_bounded():
    auth = Auth("x")
    for number in range(5000):
        auth.knows("y", str(number))
    assert len(auth._failures) <= 1024


def test_a_session_of_another_token_does_not_open():
    old, new = Auth("old"), Auth("new")
    header = f"{new.cookie_name(80)}={old.session()}"
    assert not new.has_session(header, 80)
    assert old.has_session(header, 80)
    assert not old.has_session(header, 81)
    assert not old.has_session("garbage;;==", 80)


def test_more_names_can_be_allowed():
    auth = Auth(allowed_hosts=["box.lan"])
    assert auth.answers_to("BOX.lan:3000")
    assert not auth.answers_to("other.lan")
