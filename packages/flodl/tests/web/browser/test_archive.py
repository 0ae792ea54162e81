"""The saved page: the portal in one file that needs, and can reach, nothing else."""

import pytest

from flodl.records.node import NodeReport
from flodl.web.archive import portal_file

pytestmark = pytest.mark.browser


@pytest.fixture
def saved(tmp_path):
    def save(board, **options):
        path = tmp_path / "dashboard.html"
        path.write_bytes(portal_file(board, **options))
        return path

    return save


def open_saved(desk, path, *, fragment="", ready="#metrics-legend li", **options):
    context = desk.context(offline=True, **options)
    desk.requests.clear()
    return desk.open(path.as_uri() + fragment, context, ready=ready)


def asked_elsewhere(desk):
    return [url for url in desk.requests if not url.startswith(("file:", "data:"))]


def test_every_level_opens_from_one_file_without_a_single_request(live, desk, saved):
    run = live(3, host_names=("host-a", "host-b"))
    run.board.tree.alert("rank_lost", "root/host-b/rank2", "no heartbeat for 30 s")
    run.board.finish("done")
    page = open_saved(desk, saved(run.board))
    for path in run.board.tree.paths():
        page.evaluate("path => (location.hash = `#path=${path}`)", path)
        page.wait_for_selector(f'body[data-shown="{path}"]')
        page.wait_for_selector("#metrics-legend li")
        desk.until(page, "flodl.overview[0].chart.u !== null")
        assert page.evaluate("flodl.level.track.length") > 10
    page.click("#alerts-list a")
    page.wait_for_selector('body[data-shown="root/host-b/rank2"]')
    page.keyboard.press("2")
    page.wait_for_selector("#records-body tr[data-seq]")
    page.keyboard.press("t")
    assert page.text_content("#status-text") == "Done"
    assert asked_elsewhere(desk) == []
    assert len([url for url in desk.requests if url.startswith("file:")]) == 1


def test_live_and_saved_show_the_same(live, desk, saved):
    run = live(3)
    page = desk.open(run.url)
    run.keep_up(page)
    run.board.finish("done")
    desk.until(page, "flodl.run.status === 'done' && !flodl.source.live")
    other = open_saved(desk, saved(run.board))
    for path in ("root", "root/host-0", "root/host-1/rank2"):
        shown = []
        for one in (page, other):
            one.evaluate("path => (location.hash = `#path=${path}`)", path)
            one.wait_for_selector(f'body[data-shown="{path}"]')
            desk.until(one, "flodl.overview[0].chart.u !== null")
            shown.append(
                one.evaluate(
                    """() => [...document.querySelectorAll(
                    '#metrics-legend, #children table, #gauges, #crumbs, #chips, #alerts-list')]
                    .filter(e => e.checkVisibility()).map(e => e.textContent)"""
                )
            )
        assert shown[0] == shown[1]
    pictures = []
    for one in (page, other):
        one.bring_to_front()
        one.mouse.move(2, 2)
        pictures.append(one.locator("#metrics-chart canvas").screenshot())
    assert pictures[0] == pictures[1]


@pytest.mark.parametrize(("pin", "system"), [("light", "dark"), ("dark", "light")])
def test_a_pinned_theme_beats_the_system_until_the_reader_chooses(live, desk, saved, pin, system):
    page = open_saved(desk, saved(live(1).board, theme=pin), theme=system)
    theme = "document.documentElement.dataset.theme"
    assert page.evaluate(theme) == pin
    page.click("#theme")
    page.click("#theme")
    page.click("#theme")
    chosen = page.evaluate("document.documentElement.dataset.choice")
    assert chosen in {"auto", "light", "dark"}


def test_rows_can_be_taken_out_of_a_saved_page(live, desk, saved):
    page = open_saved(desk, saved(live(2).board), fragment="#path=root/host-1")
    page.click(".menu summary")
    with page.expect_download() as download:
        page.click("#save-csv")
    lines = download.value.path().read_text().splitlines()
    assert lines[0].startswith("seq,ts,path,epoch,step,epoch_complete,work,loss")
    assert {line.split(",")[2] for line in lines[1:]} == {"root/host-1", "root/host-1/rank2"}


def test_the_live_page_saves_itself_as_the_same_kind_of_file(live, desk, tmp_path):
    run = live(2)
    page = desk.open(run.url)
    page.click(".menu summary")
    with page.expect_download() as download:
        page.click("#save-page")
    path = tmp_path / "saved.html"
    download.value.save_as(path)
    run.stop()
    page.close()
    page = open_saved(desk, path, fragment="#path=root/host-0")
    page.wait_for_selector('body[data-shown="root/host-0"]')
    assert page.evaluate("flodl.level.track.length") > 5
    assert asked_elsewhere(desk) == []


def test_a_wide_run_fits_and_opens(desk, saved, live):
    run = live(0, ranks=300, hosts=38, windows=10)
    run.run.run_epochs(1)
    path = saved(run.board)
    assert path.stat().st_size < 32 << 20
    page = open_saved(desk, path)
    assert page.evaluate("Object.keys(flodl.source.data.nodes).length") == 339


HOSTILE = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "\"'><svg onload=window.hacked=1>",
    "\u202eevil\u202c rtl",
    "<!--<script>",
    "k" * 128,
)
HOSTILE_SVG = """<svg xmlns="http://www.w3.org/2000/svg" width="90" height="40"
 xmlns:xlink="http://www.w3.org/1999/xlink"
 onload="window.hacked = 1"><script>window.hacked = 1</script>
<a xlink:href="javascript:window.hacked=1"><text x="5" y="20">name</text></a>
<image href="http://example.invalid/x.png" width="9" height="9"/>
<rect width="9" height="9" style="fill:url(http://example.invalid/y)" onclick="window.hacked = 1"/>
<foreignObject><body xmlns="http://www.w3.org/1999/xhtml">
<img src="x" onerror="window.hacked=1"/></body></foreignObject></svg>"""


def hostile_run(live):
    run = live(0, ranks=2, hosts=2, host_names=("<b>x", "a\"'b"))
    run.board.set_facts(label=HOSTILE[0], hash="<i>", hardware=HOSTILE[1])
    run.board.set_metadata(
        {text: {"nested": text, text: [text]} for text in HOSTILE} | {"long": "x" * 10_000}
    )
    run.board.set_svg(HOSTILE_SVG)
    run.run.run_epochs(1)
    for path in run.run.paths:
        run.board.tree.publish(
            [
                NodeReport(
                    path=path,
                    metrics=dict.fromkeys(HOSTILE, 1.0),
                    work=1,
                    tick=9,
                    epoch=1,
                    step=99,
                    label=HOSTILE[0],
                )
            ]
        )
    for text in HOSTILE:
        run.board.tree.alert("drift", run.run.paths[0], text)
        run.board.tree.alert(text[:60], "root", text)
    return run


@pytest.mark.parametrize("kind", ["live", "saved"])
@pytest.mark.parametrize("size", [(1440, 900), (360, 740)])
def test_hostile_names_are_text_and_nothing_else(live, desk, saved, kind, size):
    run = hostile_run(live)
    if kind == "live":
        page = desk.open(run.url, size=size)
    else:
        page = open_saved(desk, saved(run.board), size=size)
    desk.until(page, "flodl.level.known && flodl.draws > 1")
    page.wait_for_selector("#graph-box svg", state="attached")
    assert page.locator("#run-label").text_content() == HOSTILE[0]
    for text in filter(str.isprintable, HOSTILE):
        assert page.locator("#metrics-legend bdi", has_text=text).count() >= 1
    for tab in ("records", "timeline", "overview"):
        page.evaluate("tab => flodl.go('root', tab)", tab)
        page.wait_for_selector(f"#panel-{tab}:not([hidden])")
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    for path in run.board.tree.paths():
        page.evaluate("path => (location.hash = `#path=${path}`)", path)
        page.wait_for_selector(f'body[data-shown="{path}"]')
    assert page.evaluate("window.hacked") is None
    left = ":is(script, image, foreignObject, a, img, [onload], [onclick])"
    assert page.locator(f"#graph-box {left}").count() == 0
    assert [url for url in desk.requests if "invalid" in url] == []


def test_the_page_itself_builds_pictures_from_allowed_parts_only(cluster, desk):
    page = desk.open(cluster.url)
    kept = page.evaluate(
        """async text => { const entry = document.querySelector("script[type=module]").src;
        const { safeSvg } = await import(new URL("svg.js", entry).href);
        return new XMLSerializer().serializeToString(safeSvg(text)); }""",
        f'<!DOCTYPE svg [<!ENTITY x "boom">]>{HOSTILE_SVG}',
    )
    for word in ("script", "onload", "onclick", "javascript", "foreignObject", "invalid", "image"):
        assert word not in kept
    assert "name" in kept
    assert "rect" in kept
