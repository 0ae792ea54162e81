"""Walking from the root over hosts to ranks, and what each level is called."""

import pytest

from flodl.records import NodeReport

pytestmark = pytest.mark.browser


def at(page, path):
    page.wait_for_selector(f'body[data-shown="{path}"]')
    page.wait_for_selector("#metrics-legend li")
    return page


def crumbs(page):
    return page.locator("#crumbs li").all_text_contents()


def legends(page):
    return page.locator("#metrics-legend .legend-name").all_text_contents()


def test_table_chips_and_crumbs_lead_through_the_levels(cluster, desk):
    page = at(desk.open(cluster.url), "root")
    page.click("#children-body a >> text=host-a")
    at(page, "root/host-a")
    page.click("#chips a >> text=rank1")
    at(page, "root/host-a/rank1")
    assert crumbs(page) == ["root", "host-a", "rank1"]
    page.click("#crumbs a >> text=host-a")
    at(page, "root/host-a")
    page.go_back()
    at(page, "root/host-a/rank1")
    page.go_back()
    page.go_back()
    at(page, "root")
    page.go_forward()
    at(page, "root/host-a")


def test_keys_walk_down_and_up(cluster, desk):
    page = at(desk.open(cluster.url), "root")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    at(page, "root/host-b")
    page.keyboard.press("u")
    at(page, "root")


def test_an_address_opens_its_level_cold(cluster, desk):
    page = at(desk.open(f"{cluster.url}#path=root/host-b/rank2"), "root/host-b/rank2")
    assert crumbs(page) == ["root", "host-b", "rank2"]
    page = desk.open(f"{cluster.url}#path=root/host-a&tab=records", ready="#records-body tr")
    assert page.is_visible("#panel-records")


def test_legends_name_the_reduction_above_and_the_bare_key_at_a_leaf(cluster, desk):
    page = at(desk.open(cluster.url), "root")
    for path in ("root", "root/host-a"):
        page.evaluate("path => (location.hash = `#path=${path}`)", path)
        shown = legends(at(page, path))
        assert {"loss (mean)", "throughput (sum)", "grad_norm (max)"} <= set(shown)
    page.evaluate("location.hash = '#path=root/host-a/rank0'")
    shown = legends(at(page, "root/host-a/rank0"))
    assert {"loss", "throughput", "grad_norm"} <= set(shown)
    assert not [name for name in shown if "(" in name]


def test_a_declared_sum_is_named(live, desk):
    run = live(0)
    run.board.tree.declare("accuracy", "sum")
    run.run.run_epochs(1)
    assert "accuracy (sum)" in legends(at(desk.open(run.url), "root"))


@pytest.mark.parametrize(
    ("path", "near"),
    [("root/host-a/rank9", "root/host-a"), ("root/nowhere/rank1", "root"), ("root/..", "root")],
)
def test_an_unknown_level_offers_the_nearest_that_exists(cluster, desk, path, near):
    page = desk.open(f"{cluster.url}#path={path}", ready="#unknown:not([hidden])")
    assert page.text_content("#unknown-path") == path
    page.wait_for_selector("#unknown-link a")
    assert page.text_content("#unknown-link") == near
    page.click("#unknown-link a")
    at(page, near)
    assert page.is_hidden("#unknown")


def test_children_sort_and_filter(cluster, desk):
    page = at(desk.open(f"{cluster.url}#path=root/host-a"), "root/host-a")
    page.click("#children-head button >> text=throughput")
    page.wait_for_selector("#children-head th[aria-sort=descending]")
    names = page.locator("#children-body tr").evaluate_all("rows => rows.map(r => r.dataset.path)")
    assert names == ["root/host-a/rank0", "root/host-a/rank1"]
    page.click("#children-head button >> text=throughput")
    page.wait_for_selector("#children-head th[aria-sort=ascending]")
    names = page.locator("#children-body tr").evaluate_all("rows => rows.map(r => r.dataset.path)")
    assert names == ["root/host-a/rank1", "root/host-a/rank0"]
    page.fill("#children-filter", "k1")
    desk.until(page, "document.querySelectorAll('#children-body tr').length === 1")


def test_children_are_compared_without_waiting_for_another_record(live, desk):
    run = live(3, ranks=3, hosts=3)
    page = desk.open(run.url)
    page.locator("#compare-lines").scroll_into_view_if_needed()
    drawn = """() => { const { u } = flodl.overview[3].comparison.chart;
      return u ? u.data.slice(1).filter(ys => ys.some(y => typeof y === "number")).length : 0; }"""
    desk.until(page, f"({drawn})() === 3")
    assert page.is_hidden("#compare-lines .empty")


def test_the_spread_over_few_children_is_that_of_their_newest_records(live, desk):
    run = live(2, ranks=2, hosts=1)
    page = desk.open(run.url)
    run.keep_up(page)
    for rank, speed in ((0, 3.0), (1, 7.0)):
        report = NodeReport(
            path=f"root/rank{rank}",
            producer=f"rank{rank}",
            metrics={"throughput": speed},
            work=1,
            tick=9999,
        )
        run.board.tree.publish([report])
    run.keep_up(page)
    desk.until(page, "document.getElementById('compare-summary').textContent.includes('7.00K')")
    assert page.text_content("#children-body tr[data-path='root/rank1']").count("fastest") == 1
