"""Three hundred ranks cost a viewer what sixty-four do."""

import statistics

import pytest

pytestmark = pytest.mark.browser

STEPS = 12
UPDATES_PER_S = 4


def cost(live, desk, **shape):
    """Bytes, elements and drawing time of the root's page over some windows."""
    run = live(1, windows=20, **shape)
    context = desk.context()
    page = desk.open(run.url, context)
    run.keep_up(page)
    cdp = context.new_cdp_session(page)
    cdp.send("Network.enable")
    received = []
    cdp.on("Network.dataReceived", lambda event: received.append(event["dataLength"]))
    draws = []
    for _ in range(STEPS):
        run.step(page)
        draws.append(page.evaluate("flodl.drawMs"))
    page.wait_for_timeout(50)
    return {
        "bytes": sum(received) / STEPS,
        "elements": page.evaluate("document.querySelectorAll('*').length"),
        "draw_ms": statistics.median(draws),
    }


def test_a_wide_level_costs_what_sixty_four_children_cost(live, desk):
    base = cost(live, desk, ranks=64, hosts=1)
    flat = cost(live, desk, ranks=300, hosts=1)
    tiered = cost(live, desk, ranks=300, hosts=38)
    print(base, flat, tiered, sep="\n")
    for wide in (flat, tiered):
        assert wide["bytes"] < 1.5 * base["bytes"]
        assert UPDATES_PER_S * wide["bytes"] < 160_000
        assert wide["elements"] < 1.5 * base["elements"]
        assert wide["draw_ms"] < 1.5 * base["draw_ms"] + 2


def test_a_rank_of_three_hundred_costs_what_one_of_three_costs(live, desk):
    costs = []
    for ranks, hosts in ((3, 2), (300, 38)):
        run = live(2, ranks=ranks, hosts=hosts, windows=4)
        context = desk.context()
        page = desk.open(f"{run.url}#path={run.run.paths[0]}", context)
        desk.until(page, "flodl.run.link === 'live' && flodl.level.lastSeq > 0")
        cdp = context.new_cdp_session(page)
        cdp.send("Network.enable")
        received = []
        cdp.on("Network.dataReceived", lambda event, to=received: to.append(event["dataLength"]))
        for _ in range(STEPS):
            run.run.step()
            seq = run.board.tree.current(run.run.paths[0])["seq"]
            desk.until(page, "seq => flodl.level.lastSeq >= seq", seq)
        costs.append(sum(received))
    assert costs[1] < 1.5 * costs[0], costs


def test_pages_sort_and_filter_beyond_what_is_loaded(live, desk):
    run = live(1, ranks=300, hosts=1, windows=2)
    page = desk.open(run.url)
    desk.until(page, "document.querySelectorAll('#children-body tr').length === 64")
    assert "64 of 300" in page.text_content("#children-count")
    page.click("#children-next")
    page.wait_for_selector("#children-body a >> text=rank64")
    page.fill("#children-filter", "rank29")
    desk.until(page, "document.querySelectorAll('#children-body tr').length === 11")
    page.fill("#children-filter", "")
    page.click("#children-head button >> text=node")
    desk.until(page, "document.querySelector('#children-body tr').dataset.path === 'root/rank299'")


def test_an_hour_of_updates_stays_in_bounded_memory(live, desk):
    run = live(1, ranks=64, hosts=1, windows=2)
    context = desk.context()
    page = desk.open(run.url, context)
    run.keep_up(page)
    cdp = context.new_cdp_session(page)
    page.evaluate(
        """async () => { const { level } = flodl;
        const kinds = [level.node, ...level.children.values()];
        let seq = level.lastSeq; const ts = Date.now();
        for (let tick = 0; tick < 14400; tick += 1) {
          for (const rec of kinds) flodl.takeRecord(level, { ...rec, epoch_complete: undefined,
            seq: seq += 1, ts: ts + tick * 250, tick, epoch: Math.floor(tick / 20), step: tick,
            metrics: { ...rec.metrics, loss: Math.random() } });
          if (tick % 200 === 0) { flodl.redraw(); await new Promise(done => setTimeout(done)); }
        } }"""
    )
    cdp.send("HeapProfiler.collectGarbage")
    used = cdp.send("Runtime.getHeapUsage")["usedSize"]
    print(f"heap {used / 2**20:.1f} MiB")
    assert used < 100e6
