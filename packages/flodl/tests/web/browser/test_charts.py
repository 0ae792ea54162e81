"""What a chart does with values, axes, ranges and devices."""

import pytest

from flodl.records.node import NodeReport

pytestmark = pytest.mark.browser


def publish(run, values, *, path="root", first=0):
    """One window for each value of a leaf's ``loss``."""
    for number, value in enumerate(values, first):
        run.board.tree.publish(
            [
                NodeReport(
                    path=path,
                    metrics={"loss": value, "flat": 0.1},
                    work=10,
                    tick=number,
                    epoch=number // 10,
                    step=number + 1,
                )
            ]
        )


def drawn(page):
    """Series of the large chart as uPlot holds them."""
    return page.evaluate("flodl.overview[0].chart.u.data.map(s => [...s])")


def test_values_that_are_not_finite_are_marked_and_leave_a_gap(live, desk):
    run = live(0, ranks=1, hosts=1)
    page = desk.open(run.url, ready="#metrics-empty")
    desk.until(page, "globalThis.flodl?.run.link === 'live'")
    publish(run, [1.0, float("nan"), 0.5, float("inf"), 0.25])
    run.keep_up(page)
    flags = page.evaluate("flodl.overview[0].chart.picture.flags.map(f => f.kind)")
    assert flags == ["nan", "inf"]
    assert [value for value in drawn(page)[1] if value is not None] == [1.0, 0.5, 0.25]
    assert "nonfinite" in page.text_content("#alerts-list")
    page.click("#metrics-tools button >> nth=0")
    assert "not finite" in page.text_content(".chart-table >> nth=0")


def test_a_log_axis_leaves_out_what_it_cannot_show_and_marks_it(live, desk):
    run = live(0, ranks=1, hosts=1)
    publish(run, [1.0, 0.1, 0.0, 0.01, -1.0, 0.001])
    page = desk.open(run.url)
    page.check("#log-axis")
    desk.until(page, "flodl.overview[0].chart.u.scales.loss.distr === 3")
    assert [value for value in drawn(page)[1] if value is not None] == [1.0, 0.1, 0.01, 0.001]
    assert page.evaluate("flodl.overview[0].chart.u.scales.loss.min > 0")


def test_smoothing_leaves_a_constant_alone_and_the_raw_curve_in_sight(live, desk):
    run = live(0, ranks=1, hosts=1)
    publish(run, [2.0, 1.0, 1.5, 0.5] * 10)
    page = desk.open(run.url)
    page.click("#metrics-legend .legend-name >> text=flat")
    page.fill("#smoothing", "0.9")
    desk.until(page, "flodl.overview[0].chart.u.series.length === 3")
    assert set(drawn(page)[2]) == {0.1}
    page.click("#metrics-legend .legend-name >> text=loss")
    desk.until(page, "flodl.overview[0].chart.picture.curves[0].key === 'loss'")
    _, raw, smooth = drawn(page)
    assert max(smooth) - min(smooth) < max(raw) - min(raw)
    assert smooth[0] == raw[0]


def test_a_zoom_asks_for_finer_points_and_escape_shows_everything(live, desk):
    run = live(0, ranks=1, hosts=1)
    for batch in range(60):
        publish(run, [1 + (n % 7) / 7 for n in range(50)], first=batch * 50)
    page = desk.open(run.url)
    page.check("[name=x-mode][value=step]", force=True)
    desk.until(page, "flodl.overview[0].chart.picture.mode === 'step'")
    desk.requests.clear()
    box = page.locator("#metrics-chart .u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 60, steps=4)
    page.mouse.up()
    desk.until(page, "flodl.view.zoom !== null && flodl.detail !== null")
    assert len([url for url in desk.requests if "/series" in url and "from=" in url]) == 1
    low, high = page.evaluate("flodl.view.zoom")
    assert low == pytest.approx(600, abs=60)
    assert high == pytest.approx(1200, abs=60)
    assert page.evaluate("flodl.overview[0].chart.u.scales.x.max") == pytest.approx(high)
    page.keyboard.press("Escape")
    desk.until(page, "flodl.view.zoom === null && flodl.overview[0].chart.u.scales.x.max > 2900")


def test_several_units_say_so_and_one_alone_has_its_true_axis(cluster, desk):
    page = desk.open(cluster.url)
    page.check("#metrics-legend .legend-item:has-text('throughput') input")
    page.wait_for_selector("#metrics-chart .axis-note:not([hidden])")
    page.click("#metrics-legend .legend-name >> text=throughput")
    page.wait_for_selector("#metrics-chart .axis-note", state="hidden")
    assert page.evaluate("flodl.overview[0].chart.picture.curves.map(c => c.key)") == ["throughput"]


def test_a_point_before_now_keeps_its_place_when_the_past_is_halved(live, desk):
    run = live(1, ranks=1, hosts=1)
    page = desk.open(run.url)
    sizes = page.evaluate(
        """() => { const { track } = flodl.level; const ts = Date.now();
        for (let i = 0; i < 20000; i += 1) flodl.takeRecord(flodl.level, { kind: "node",
          path: "root", seq: 1e6 + i, ts: ts + i, epoch: 1 + Math.floor(i / 100), step: i,
          metrics: { loss: i % 2 } });
        const c = track.columns.get("loss");
        return [track.length, c.mean.length, c.lo.length, track.t.at(-1) - ts,
          Math.min(...c.lo.filter(v => v !== undefined)), track.step.at(-2)]; }"""
    )
    assert sizes[0] <= 4096
    assert sizes[0] == sizes[1] == sizes[2]
    assert sizes[3:] == [19_999, 0, 19_998]


def test_one_gpu_has_no_tabs(live, desk):
    run = live(2, ranks=1, hosts=1)
    page = desk.open(run.url)
    run.keep_up(page)
    assert page.is_hidden("#gpus")
    assert page.is_visible("#gauges")


def test_two_gpus_have_tabs_four_charts_a_limit_and_words(live, desk):
    run = live(2, ranks=2, hosts=1)
    page = desk.open(run.url)
    page.wait_for_selector("#gpus:not([hidden])")
    assert page.locator("#gpu-tabs [role=tab]").all_text_contents() == [
        "Overview",
        "rank0",
        "rank1",
    ]
    rows = page.locator("#gpu-rows tr").all_text_contents()
    assert "fastest" in rows[0]
    assert "slowest" in rows[1]
    page.click("#gpu-tabs >> text=rank1")
    page.wait_for_selector("#gpu-detail:not([hidden])")
    page.locator("#gpu-charts").scroll_into_view_if_needed()
    desk.until(page, "document.querySelectorAll('#gpu-charts canvas').length === 4")
    limit = page.evaluate("flodl.overview[2].charts[0].chart.picture.limit")
    assert limit == {"value": 6 << 30, "label": "limit 6.0 GB"}
    page.click("#gpu-link")
    desk.until(page, "flodl.level.path === 'root/rank1'")


def test_a_run_without_gpus_shows_none(live, desk):
    run = live(2, has_gpus=False)
    page = desk.open(run.url)
    run.keep_up(page)
    names = page.locator("#gauges .gauge-name").all_text_contents()
    assert [name.split(",")[0] for name in names] == ["CPU", "RAM"]


def test_a_picture_of_a_chart_can_be_saved(cluster, desk):
    page = desk.open(cluster.url)
    desk.until(page, "flodl.overview[0].chart.u !== null")
    with page.expect_download() as download:
        page.click("#metrics-tools button >> nth=1")
    assert download.value.suggested_filename == "Metrics.png"
    assert download.value.path().read_bytes().startswith(b"\x89PNG")
