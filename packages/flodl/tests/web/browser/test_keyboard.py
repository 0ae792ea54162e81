"""Everything can be reached and used with keys alone."""

import pytest

pytestmark = pytest.mark.browser


def focused(page):
    return page.evaluate("document.activeElement.id || document.activeElement.className")


def test_tab_reaches_every_control(cluster, desk):
    page = desk.open(f"{cluster.url}#path=root/host-a")
    page.wait_for_selector("#gpus:not([hidden])")
    page.click("body", position={"x": 2, "y": 300})
    wanted = page.evaluate(
        """[...document.querySelectorAll('button, a[href], input, select, summary, [tabindex="0"]')]
        .filter(e => e.tabIndex >= 0 && e.checkVisibility({visibilityProperty: true}) && !e.disabled
          && !(e.type === "radio" && !e.checked))
        .map((e, i) => (e.dataset.stop = i))"""
    )
    reached = set()
    for _ in range(len(wanted) + 15):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.dataset.stop"))
    assert {str(stop) for stop in wanted} - reached == set()


def test_a_chart_is_read_point_by_point_and_spoken(cluster, desk):
    page = desk.open(cluster.url)
    desk.until(page, "flodl.overview[0].chart.u !== null")
    page.focus("#metrics-chart .plot")
    page.keyboard.press("Home")
    desk.until(page, "document.getElementById('polite').textContent.includes('loss (mean)')")
    first = page.text_content("#polite")
    assert first.startswith("epoch 0.20: loss (mean) ")
    page.keyboard.press("ArrowRight")
    desk.until(page, "said => document.getElementById('polite').textContent !== said", first)
    assert page.text_content("#metrics-readout") == "epoch 0.40"
    page.keyboard.press("End")
    assert page.text_content("#polite").startswith("epoch 3")


def test_letters_change_tabs_colors_help_and_filter(cluster, desk):
    page = desk.open(cluster.url)
    page.keyboard.press("2")
    page.wait_for_selector("#panel-records:not([hidden])")
    page.keyboard.press("3")
    page.wait_for_selector("#panel-timeline:not([hidden])")
    page.keyboard.press("1")
    page.wait_for_selector("#panel-overview:not([hidden])")
    page.keyboard.press("?")
    assert page.evaluate("document.getElementById('help').open")
    page.keyboard.press("Escape")
    assert not page.evaluate("document.getElementById('help').open")
    page.keyboard.press("/")
    assert focused(page) == "children-filter"
    page.keyboard.type("host-b")
    desk.until(page, "document.querySelectorAll('#children-body tr').length === 1")
    page.keyboard.press("Escape")
    desk.until(page, "document.querySelectorAll('#children-body tr').length === 2")
    before = page.evaluate("document.documentElement.dataset.choice")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.choice") != before


def test_tabs_and_devices_follow_the_arrows(cluster, desk):
    page = desk.open(f"{cluster.url}#path=root/host-a")
    page.wait_for_selector("#gpus:not([hidden])")
    page.focus("#tab-overview")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#panel-records:not([hidden])")
    assert focused(page) == "tab-records"
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("#panel-overview:not([hidden])")
    page.focus("#gpu-tabs [aria-selected=true]")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#gpu-detail:not([hidden])")
    assert "rank0" in page.text_content("#gpu-name")


def test_the_skip_button_leads_to_the_charts(cluster, desk):
    page = desk.open(cluster.url)
    page.keyboard.press("Tab")
    assert focused(page) == "skip"
    page.keyboard.press("Enter")
    assert focused(page) == "main"
