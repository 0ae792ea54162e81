"""Alerts reach a viewer wherever in the run they happen."""

import pytest

from flodl.web.archive import portal_file

pytestmark = pytest.mark.browser


def test_a_loss_elsewhere_is_seen_heard_and_one_click_away(live, desk):
    run = live(2, host_names=("host-a", "host-b"))
    page = desk.open(f"{run.url}#path=root/host-a")
    desk.until(page, "flodl.run.link === 'live' && flodl.level.known")
    run.board.tree.alert("rank_lost", "root/host-b/rank2", "no heartbeat for 30 s")
    run.board.tree.set_alive("root/host-b/rank2", alive=False)
    page.wait_for_selector("#alerts-badge:not([hidden])", timeout=2000)
    assert page.text_content("#alerts-badge") == "1"
    assert page.get_attribute("#alerts-badge", "data-sev") == "critical"
    assert page.is_hidden("#crumb-badge")
    assert page.title().startswith("(1)")
    assert "rank lost at root/host-b/rank2" in page.text_content("#assertive")
    page.click("#alerts-list a")
    desk.until(page, "flodl.level.path === 'root/host-b/rank2'")
    page.wait_for_selector("#level-lost:not([hidden])")
    page.evaluate("location.hash = '#path=root/host-b'")
    page.wait_for_selector("#chips a[data-lost] s")
    assert page.text_content("#crumb-badge") == "1"
    assert "lost" in page.text_content("#children-body tr")


def test_the_list_can_be_narrowed_to_this_level(live, desk):
    run = live(1, host_names=("host-a", "host-b"))
    run.board.tree.alert("drift", "root/host-a", "anchor 8 corrected to 6")
    run.board.tree.alert("stalled", "root/host-b", "no report for 30 s")
    page = desk.open(f"{run.url}#path=root/host-a")
    desk.until(page, "document.querySelectorAll('#alerts-list li').length === 2")
    page.check("#alerts-here")
    desk.until(page, "document.querySelectorAll('#alerts-list li').length === 1")
    assert "drift" in page.text_content("#alerts-list")


def test_replayed_alerts_count_once(live, desk):
    desk.allowed = (
        "ERR_CONNECTION_REFUSED",
        "ERR_INCOMPLETE_CHUNKED_ENCODING",
        "ERR_EMPTY_RESPONSE",
    )
    run = live(1)
    run.board.tree.alert("drift", "root", "anchor 8 corrected to 6")
    page = desk.open(run.url)
    page.wait_for_selector("#alerts-list li")
    run.stop()
    page.wait_for_selector("#banner:not([hidden])")
    run.restart()
    run.step(page)
    assert page.locator("#alerts-list li").count() == 1
    assert page.text_content("#alerts-badge") == "1"


def test_who_came_back_is_not_lost_and_the_newest_comes_first_also_in_a_saved_page(
    live, desk, tmp_path
):
    run = live(2, host_names=("host-a", "host-b"))
    moments = iter((1000.0, 1000.0, 2000.0, 2000.0))
    run.board.tree._store._wall = lambda: next(moments, 3000.0)
    path = "root/host-b/rank2"
    run.board.tree.alert("rank_lost", path, "signal 9")
    run.board.tree.alert("rank_joined", path, "rank 2 joined on host-b")
    file = tmp_path / "page.html"
    file.write_bytes(portal_file(run.board))
    for url in (f"{run.url}#path=root/host-b", f"{file.as_uri()}#path=root/host-b"):
        page = desk.open(url, ready="#alerts-list li")
        desk.until(page, "document.querySelectorAll('#alerts-list li').length === 2")
        first = page.locator("#alerts-list li").first.text_content()
        assert "rank joined" in first
        assert page.locator("#chips a[data-lost]").count() == 0
