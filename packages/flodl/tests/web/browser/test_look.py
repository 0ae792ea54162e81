"""Colors, contrast, names for screen readers, and every width without overlap."""

import pytest

pytestmark = pytest.mark.browser

DESKTOP, PHONE = (1440, 900), (360, 740)
READY = ("#metrics-legend li", "#records-body tr")
_OVERLAP = """() => {
  const out = [];
  const boxes = [...document.querySelectorAll(
    '.card > header > *, .top .actions > *, .brand > *, .fact, .gauge, .tabs button, .chip')]
    .filter(e => e.checkVisibility() && e.getBoundingClientRect().width > 1)
    .map(e => [e, e.getBoundingClientRect()]);
  for (let i = 0; i < boxes.length; i += 1) for (let j = i + 1; j < boxes.length; j += 1) {
    const [[a, r], [b, s]] = [boxes[i], boxes[j]];
    if (a.contains(b) || b.contains(a)) continue;
    const w = Math.min(r.right, s.right) - Math.max(r.left, s.left);
    const h = Math.min(r.bottom, s.bottom) - Math.max(r.top, s.top);
    if (w > 1 && h > 1) out.push(`${a.id || a.className} / ${b.id || b.className}`);
  }
  return out;
}"""


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("where", ["path=root", "path=root/host-a", "path=root/host-a&tab=records"])
def test_no_serious_accessibility_problem(cluster, desk, audit, theme, where):
    page = desk.open(f"{cluster.url}#{where}", theme=theme, ready=READY["records" in where])
    desk.until(page, "flodl.level.known && flodl.draws > 1")
    assert audit(page) == []


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_first_paint_has_the_final_colors(cluster, desk, theme):
    page = desk.page(theme=theme)
    page.add_init_script(
        """window.seen = new Set(); const look = () => {
        if (document.body) window.seen.add(getComputedStyle(document.body).backgroundColor);
        requestAnimationFrame(look); }; look();"""
    )
    page.goto(cluster.url, wait_until="commit")
    page.wait_for_selector("#metrics-legend li", state="attached")
    page.keyboard.press("2")
    assert len(page.evaluate("[...window.seen]")) == 1


def test_the_toggle_beats_the_system_and_is_remembered(cluster, desk):
    context = desk.context(theme="light")
    page = desk.open(cluster.url, context)
    theme = "document.documentElement.dataset.theme"
    assert page.evaluate(theme) == "light"
    page.emulate_media(color_scheme="dark")
    desk.until(page, f"{theme} === 'dark'")
    page.emulate_media(color_scheme="light")
    page.click("#theme")
    page.click("#theme")
    assert page.evaluate(theme) == "dark"
    before = page.evaluate("flodl.draws")
    desk.until(page, "before => flodl.draws > before", before)
    assert page.evaluate("flodl.overview[0].chart.shape").endswith('"dark"]')
    page.reload(wait_until="commit")
    page.wait_for_selector("#metrics-legend li", state="attached")
    assert page.evaluate(theme) == "dark"
    assert page.text_content("#theme-word") == "dark"


@pytest.mark.parametrize("size", [DESKTOP, PHONE, (768, 1024)])
@pytest.mark.parametrize(
    "where", ["path=root", "path=root/host-a", "path=root/host-b/rank2&tab=records"]
)
def test_no_width_scrolls_sideways_or_overlaps(cluster, desk, size, where):
    ready = READY["records" in where]
    page = desk.open(f"{cluster.url}#{where}", size=size, touch=size == PHONE, ready=ready)
    desk.until(page, "flodl.level.known && flodl.draws > 1")
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert page.evaluate("document.body.scrollWidth") <= size[0]
    assert page.evaluate(_OVERLAP) == []


def test_targets_on_a_phone_are_large_enough(cluster, desk):
    page = desk.open(f"{cluster.url}#path=root/host-a", size=PHONE, touch=True)
    desk.until(page, "flodl.level.known && flodl.draws > 1")
    small = page.evaluate(
        """[...document.querySelectorAll(
          'button, a[href], select, summary, label.check, label.swatch')]
        .filter(e => e.checkVisibility() && !e.closest('.unseen, .skip, .compare'))
        .map(e => [e.id || e.textContent.trim(), e.getBoundingClientRect()])
        .filter(([, r]) => r.height < 43.5).map(([name, r]) => `${name} ${r.width}x${r.height}`)"""
    )
    assert [name for name in small if not name.startswith("skip")] == []


def test_a_finger_moves_the_cursor(cluster, desk):
    page = desk.open(cluster.url, size=PHONE, touch=True)
    desk.until(page, "flodl.overview[0].chart.u !== null")
    page.locator("#metrics-chart .u-over").scroll_into_view_if_needed()
    box = page.locator("#metrics-chart .u-over").bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    desk.until(page, "document.getElementById('metrics-readout').textContent !== ''")


def test_two_fingers_zoom_into_a_chart_and_out_again(cluster, desk):
    context = desk.context(size=PHONE, touch=True)
    page = desk.open(cluster.url, context)
    desk.until(page, "flodl.overview[0].chart.u !== null")
    chart = page.locator("#metrics-chart .u-over")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    center, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    cdp = context.new_cdp_session(page)

    def pinch(start, end):
        for kind, half in (
            ("touchStart", start),
            ("touchMove", (start + end) / 2),
            ("touchMove", end),
        ):
            points = [
                {"x": center + side * half, "y": y, "id": n} for n, side in enumerate((-1, 1))
            ]
            cdp.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        cdp.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    span = "(() => { const { x } = flodl.overview[0].chart.u.scales; return x.max - x.min; })()"
    whole = page.evaluate(span)
    pinch(30, 90)
    desk.until(page, f"whole => {span} < 0.5 * whole", whole)
    assert page.evaluate("visualViewport.scale") == 1
    pinch(100, 20)
    desk.until(page, f"whole => {span} >= whole", whole)


def test_updates_do_not_move_the_page(live, desk):
    run = live(2, ranks=2, hosts=1)
    page = desk.open(run.url)
    run.keep_up(page)
    page.evaluate(
        """window.shift = 0; new PerformanceObserver(list => { for (const e of list.getEntries())
        window.shift += e.value; }).observe({ type: "layout-shift" });"""
    )
    for _ in range(10):
        run.step(page)
    assert page.evaluate("window.shift") < 0.02
