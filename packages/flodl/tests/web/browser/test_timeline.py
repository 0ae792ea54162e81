"""The timeline, as a tab of the portal and as a page of its own."""

import json

import pytest

from flodl.web.archive import page_with_data

pytestmark = pytest.mark.browser


def recording(samples, *, devices=2):
    """A run of so many samples, ten a second, with epochs, syncs and idle stretches."""
    times = [100 * n for n in range(samples)]
    busy = [0 if n % 700 < 12 else 85 + n % 13 for n in range(samples)]
    gpu = {
        "u": busy,
        "va": [3_000_000_000 + n % 997 for n in range(samples)],
        "vt": [6 << 30] * samples,
    }
    events = [{"t": 70_000 * n, "k": "epoch_start", "epoch": n} for n in range(samples // 700)]
    events += [{"t": 5_000 * n + 300, "k": "sync_end", "ms": 40} for n in range(samples // 50)]
    return {
        "v": 1,
        "host": "host-a",
        "columns": {
            "t": times,
            "cpu": [20 + n % 30 for n in range(samples)],
            "ram_used": [9_000_000_000] * samples,
            "ram_total": [64 << 30] * samples,
            "gpus": [{"d": d, **gpu} for d in range(devices)],
        },
        "rank_samples": [],
        "events": sorted(events, key=lambda event: event["t"]),
    }


def opened(desk, tmp_path, data, **options):
    path = tmp_path / "timeline.html"
    path.write_bytes(page_with_data("timeline.html", json.dumps(data).encode()))
    page = desk.page(desk.context(offline=True, **options))
    page.add_init_script(
        """new PerformanceObserver(list => { window.painted = list.getEntries()[0].startTime; })
        .observe({ type: "paint", buffered: true });"""
    )
    page.goto(path.as_uri(), wait_until="commit")
    page.wait_for_selector(".lane-range:not(:empty)")
    return page


def pan_frame_ms(page):
    """Return the median time of a frame while the view pans."""
    frames = page.evaluate(
        """() => new Promise(done => { const view = flodl; view.zoom(0.2); const times = [];
        let last = performance.now(); const step = () => { const now = performance.now();
          times.push(now - last); last = now; view.pan(9);
          if (times.length < 61) requestAnimationFrame(step); else done(times.slice(1)); };
        requestAnimationFrame(step); })"""
    )
    return sorted(frames)[30]


def test_half_a_million_samples_pan_like_five_thousand(desk, tmp_path):
    small = pan_frame_ms(opened(desk, tmp_path, recording(5_000)))
    page = opened(desk, tmp_path, recording(500_000))
    large = pan_frame_ms(page)
    painted = page.evaluate("window.painted")
    print(f"painted after {painted:.0f} ms, median frame {large:.1f} ms, {small:.1f} ms for 1 %")
    assert large < 4 * small
    assert [url for url in desk.requests if not url.startswith(("file:", "data:"))] == []


def test_wheel_and_keys_reach_single_samples_and_return(desk, tmp_path):
    page = opened(desk, tmp_path, recording(5_000))
    span = "flodl.frame.to - flodl.frame.from"
    whole = page.evaluate(span)
    page.mouse.move(800, 300)
    for _ in range(30):
        page.mouse.wheel(0, -400)
    desk.until(page, f"{span} < 200")
    page.focus("canvas.lanes")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("0")
    assert page.evaluate(span) == whole
    page.keyboard.press("+")
    assert page.evaluate(span) == whole / 2


def test_the_tip_tells_the_nearest_sample_and_its_events(desk, tmp_path):
    page = opened(desk, tmp_path, recording(5_000))
    box = page.locator("canvas.lanes").bounding_box()
    page.mouse.move(box["x"] + 116 + 1, box["y"] + 60)
    page.wait_for_selector(".lane-tip:not([hidden])")
    text = page.text_content(".lane-tip")
    assert "GPU 0" in text
    assert "epoch start" in text


def test_event_kinds_can_be_hidden(desk, tmp_path):
    page = opened(desk, tmp_path, recording(5_000))
    assert page.evaluate("[...flodl.frame.kinds]") == ["epoch_start", "sync_end"]
    page.uncheck(".kinds label:has-text('sync end') input")
    assert page.evaluate("[...flodl.frame.kinds]") == ["epoch_start"]


def test_the_summary_counts_idle_time(desk, tmp_path):
    page = opened(desk, tmp_path, recording(1_400, devices=1))
    rows = page.locator(".summary tr").all_text_contents()
    assert "GPU 0 idle1.7%, 2 gaps" in rows
    assert "syncs28, mean 40.0 ms" in rows


class Recorded:
    """A timeline that grows no more."""

    def body(self, start_ms=None, end_ms=None):
        return {
            "v": 1,
            "host": "controller",
            "samples": [
                {
                    "t": 100 * n,
                    "cpu": 20,
                    "ram": [9, 64],
                    "gpus": [{"d": 0, "u": 90, "vu": 2, "va": 2, "vt": 6}],
                }
                for n in range(100)
            ],
            "rank_samples": [{"t": 500, "rank": 1, "host": "host-0", "gpus": [{"d": 1, "u": 80}]}],
            "events": [{"t": 1000, "k": "checkpoint", "ms": 12, "path": "a.fdl"}],
        }


def test_the_tab_follows_the_level(live, desk):
    run = live(2)
    run.board.add_timeline("controller", Recorded())
    page = desk.open(f"{run.url}#path=root&tab=timeline", ready="#timeline-box .kinds label")
    assert page.text_content("#timeline-host") == "controller"
    page.evaluate("location.hash = '#path=root/host-0&tab=timeline'")
    page.wait_for_selector("#timeline-none:not([hidden])")


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("size", [(1440, 900), (360, 740)])
def test_the_page_is_accessible_and_fits(desk, tmp_path, audit, theme, size):
    page = opened(desk, tmp_path, recording(3000), theme=theme, size=size)
    assert audit(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
