"""A run on one host without GPUs, as two ranks on the CPU report it."""

import pytest

from flodl.core.resources import ResourceSample
from flodl.monitor.timeline import Timeline
from flodl.testing.fake_run import FakeRunShape

pytestmark = pytest.mark.browser

SHAPE = {"ranks": 2, "hosts": 1, "has_gpus": False}
SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><circle r="3"/></svg>'


def texts(page, selector):
    return page.locator(selector).all_text_contents()


def shown(page, selector):
    return page.locator(f"{selector}:visible").all_text_contents()


def test_columns_and_charts_of_gpus_are_not_there(live, desk):
    one = live(**SHAPE)
    page = desk.open(one.url, ready="#gpu-rows tr")
    assert shown(page, "#gpu-overview th[scope=col]") == ["device", "throughput", "batch share"]
    heads = shown(page, "#children-head th")
    assert "throughput" in heads
    assert not {"dev", "gpu", "vram"} & set(heads)
    page.click("#gpu-tabs button >> text=rank1")
    page.wait_for_selector("#gpu-detail:not([hidden])")
    assert shown(page, "#gpu-charts h3") == ["Throughput", "Batch share"]
    assert "CPU, 32 threads" in texts(page, "#gauges .gauge-name")


def test_with_gpus_all_of_them_are_there(live, desk):
    page = desk.open(live(ranks=2, hosts=1).url, ready="#gpu-rows tr")
    assert shown(page, "#gpu-overview th[scope=col]")[1:3] == ["utilization", "VRAM"]
    assert {"dev", "gpu", "vram"} <= set(shown(page, "#children-head th"))
    page.click("#gpu-tabs button >> text=rank1")
    page.wait_for_selector("#gpu-detail:not([hidden])")
    assert len(shown(page, "#gpu-charts h3")) == 4


def test_shares_get_a_chart_where_they_differ(live, desk):
    one = live(**SHAPE)
    page = desk.open(one.url)
    assert not [text for text in texts(page, "#small-charts h3") if "batch_share" in text]
    page = desk.open(f"{one.url}#path=root/rank1")
    page.wait_for_selector('body[data-shown="root/rank1"]')
    assert "batch_share" in texts(page, "#small-charts h3")


def test_model_and_settings_appear_on_a_page_that_is_open_already(live, desk):
    one = live(**SHAPE)
    one.board._svg = None
    page = desk.open(one.url)
    desk.until(page, "flodl.run.epochs.length > 0")  # the picture was asked for before them
    assert not page.is_visible("#architecture")
    one.board.set_svg(SVG)
    one.board.set_metadata({"optimizer": "AdamW"})
    one.board.set_facts(label="classifier", hash="0123456789abcdef")
    one.board.tree.describe(label="classifier", hash="0123456789abcdef")
    page.wait_for_selector("#graph-box svg circle")
    page.wait_for_selector("#settings-list >> text=AdamW")
    page.wait_for_selector("#run-label >> text=classifier")


def test_the_result_of_an_evaluation_is_a_row_of_its_own(live, desk):
    one = live(**SHAPE)
    one.board.tree.publish([], engine={"accuracy": 0.875}, of_epoch=2)
    page = desk.open(f"{one.url}#path=root&tab=records", ready="#records-body tr")
    first = page.locator("#records-body tr").first
    assert first.locator(".kind").text_content() == "result"
    assert "0.8750" in first.text_content()


def test_a_rank_s_timeline_is_that_of_the_one_host(live, desk):
    one = live(**SHAPE)
    timeline = Timeline(poll_ms=0, spill=False)
    timeline.poll()
    timeline.rank_sample(0, timeline.host, ResourceSample(cpu_percent=50.0))
    timeline.rank_sample(0, "elsewhere", ResourceSample(cpu_percent=50.0))
    one.board.add_timeline(timeline.host, timeline)
    page = desk.open(f"{one.url}#path=root/rank1&tab=timeline", ready="#timeline-box canvas")
    desk.until(page, "document.getElementById('timeline-host').textContent !== ''")
    assert page.text_content("#timeline-host") == timeline.host
    lanes = page.evaluate("flodl.timeline.view.recording.lanes.map((l) => l.name)")
    # a lane for what was measured, and none for a GPU that is not there
    assert lanes == ["elsewhere CPU", "CPU", "RAM"]


def test_the_shape_of_this_run_has_no_gpus():
    assert FakeRunShape(**SHAPE).has_gpus is False
