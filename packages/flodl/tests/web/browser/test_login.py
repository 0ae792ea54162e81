"""A page that asks for a token shows nothing before it has one."""

import pytest

pytestmark = pytest.mark.browser

TOKEN = "a-long-enough-token-for-tests"
REFUSED = ("401",)


@pytest.fixture
def guarded(live):
    return live(2, serve={"token": TOKEN})


def test_nothing_of_the_run_is_shown_before_the_login(guarded, desk):
    desk.allowed = REFUSED
    page = desk.open(guarded.url, ready="#login:not([hidden])")
    assert page.is_hidden("#shell")
    assert "fake resnet" not in page.content()
    page.fill("#login-token", "wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("#login-error:has-text('not accepted')")
    page.fill("#login-token", TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_selector("#metrics-legend li", state="attached")
    assert page.is_hidden("#login")
    (session,) = [c for c in page.context.cookies() if c["name"].startswith("flodl_session")]
    assert session["httpOnly"]
    assert session["sameSite"] == "Strict"
    assert session["path"] == "/"


def test_a_token_in_the_fragment_logs_in_and_leaves_the_address(guarded, desk):
    page = desk.open(f"{guarded.url}#token={TOKEN}")
    assert "token" not in page.url
    assert not [url for url in desk.requests if TOKEN in url.split("#")[0]]
    assert page.is_visible("#shell")


def test_a_wrong_token_in_the_fragment_says_so(guarded, desk):
    desk.allowed = REFUSED
    page = desk.open(f"{guarded.url}#token=nonsense", ready="#login:not([hidden])")
    page.wait_for_selector("#login-error:has-text('not accepted')")
    assert "nonsense" not in page.url


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("size", [(1440, 900), (360, 740)])
def test_the_login_is_accessible_and_fits(guarded, desk, audit, theme, size):
    desk.allowed = REFUSED
    page = desk.open(guarded.url, ready="#login:not([hidden])", theme=theme, size=size)
    page.fill("#login-token", "wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("#login-error:has-text('not accepted')")
    assert audit(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
