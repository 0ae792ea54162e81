// @ts-check
// The page as a whole: one level at a time, one connection, one drawing beat.

import { AlertsPanel } from "./alerts.js";
import { embedded } from "./payload.js";
import { byId, h, setAttr, setText, show } from "./dom.js";
import { Feed } from "./feed.js";
import { Header } from "./header.js";
import { ChildrenPanel } from "./children.js";
import { Controls } from "./controls.js";
import { GpusPanel } from "./gpus.js";
import { Login } from "./login.js";
import { MetricsPanel } from "./metrics.js";
import { ModelPanel } from "./model.js";
import { RecordsPanel } from "./records.js";
import { ResourcesPanel } from "./resources.js";
import { TimelinePanel } from "./timeline.js";
import { readPalette } from "./paint.js";
import { indexAt, xOf } from "./pictures.js";
import { isPath, linkTo, parentOf, readRoute } from "./route.js";
import { HttpSource, RequestError, SavedSource } from "./source.js";
import { CHILD_LIMIT, isLost, Level, Run } from "./store.js";
import { Track } from "./track.js";

/** Two drawings are at least this far apart. */
const BEAT_MS = 150;
/** So long a page waits for its stream before it draws without it. */
const PATIENCE_MS = 1500;

export class Page {
  /** @param {any} source an HttpSource or a SavedSource */
  constructor(source) {
    this.source = source;
    this.run = new Run();
    this.level = new Level("root");
    this.tab = "overview";
    this.view = { mode: "epoch", log: false, smooth: 0, solo: "", zoom: /** @type {[number, number] | null} */ (null), chosen: /** @type {Map<string, boolean>} */ (new Map()) };
    /** @type {Track | null} finer points of a zoomed range */ this.detail = null;
    /** @type {Feed | null} */ this.feed = null;
    this.lastDraw = 0;
    this.say = (/** @type {string} */ text) => setText(byId("polite"), text);
    this.login = new Login(() => this.start());
    this.header = new Header(this);
    this.alerts = new AlertsPanel(this);
    this.model = new ModelPanel(this);
    this.records = new RecordsPanel(this);
    this.timeline = new TimelinePanel(this);
    this.overview = [new MetricsPanel(this), new ResourcesPanel(this), new GpusPanel(this), new ChildrenPanel(this), this.model];
    this.controls = new Controls(this);
  }

  get track() {
    return this.detail ?? this.level.track;
  }

  now() {
    return this.source.live ? Date.now() : (this.source.data.saved_ts ?? this.level.lastRecordAt);
  }

  /** The history of a child, fetched once and then fed by the stream. @param {string} path */
  childTrack(path) {
    const { level } = this;
    let track = level.childTracks.get(path);
    if (!track) {
      track = new Track();
      level.childTracks.set(path, track);
      this.load(async () => {
        track?.seed(await this.source.series(path, {}));
        level.childVersion += 1;
        this.redraw();
      });
    }
    return track;
  }

  /** @param {any} rec */
  isGone(rec) {
    return isLost(rec) || (rec.children === undefined && this.lost.has(rec.path));
  }

  async start() {
    this.lost = new Set();
    await this.load(async () => {
      if (this.source.live && !(await this.login.fromAddress())) return;
      this.run.facts = await this.source.facts();
      this.login.hide();
      for (const alert of await this.source.alerts()) this.takeAlert(alert);
      if (!this.source.live) this.takeSaved(this.source.data);
      await this.enter();
      await this.model.load();
      this.run.epochs = await this.source.epochs();
      this.redraw();
    });
  }

  /** Runs a request; what goes wrong is shown, not thrown away. @param {() => Promise<void>} work */
  async load(work) {
    try {
      await work();
    } catch (error) {
      if (error instanceof RequestError && error.status === 401) this.login.show("");
      else if (error instanceof TypeError || error instanceof RequestError) {
        this.run.link = this.run.link === "ended" ? "ended" : "lost";
        if (!this.feed && this.source.live) setTimeout(() => this.start(), 2000);
        this.redraw();
      } else throw error;
    }
  }

  /** @param {any} data */
  takeSaved(data) {
    this.run.meta = data.meta ?? null;
    this.run.status = data.status ?? "done";
    this.run.link = "saved";
    this.run.clock = { elapsed: data.seconds, at: Date.now() };
    const when = data.saved_ts ? new Date(data.saved_ts).toLocaleString() : "";
    setText(byId("saved-note"), `Saved page${when ? ` of ${when}` : ""}${data.resolution ? `, ${data.resolution}` : ""}`);
    show(byId("saved-note"), true);
  }

  /** @param {string} path @param {string} [tab] */
  go(path, tab = this.tab) {
    location.hash = linkTo(path, tab);
  }

  /** Follows the address. */
  async enter() {
    const { path, tab } = readRoute();
    const moved = path !== this.level.path || this.level.known === null;
    this.tab = tab;
    if (!moved) {
      this.controls.showTab();
      this.redraw();
      return;
    }
    this.feed?.close();
    this.feed = null;
    this.level = new Level(path);
    this.detail = null;
    this.view.zoom = null;
    for (const part of [...this.overview, this.records, this.alerts, this.header, this.timeline]) part.reset();
    this.controls.showTab();
    this.header.update();
    if (isPath(path)) await this.fill(this.level);
    else this.level.known = false;
    await this.unknown(this.level);
    this.redraw();
  }

  /** @param {Level} level */
  async fill(level) {
    /** @type {any[] | null} records that arrive before the history they continue */
    let early = [];
    const take = (/** @type {any} */ rec) => (early ? early.push(rec) : this.takeRecord(level, rec));
    if (this.source.live) this.feed = new Feed(this.source, level.path, { event: (name, data) => this.event(level, name, data, take), link: (link) => this.linked(link) });
    const [node, series] = await Promise.all([this.source.node(level.path, { limit: CHILD_LIMIT }), this.source.series(level.path, {}), this.introduction()]);
    level.setNode(node);
    level.track.seed(series);
    const rows = this.source.live ? [] : await this.source.history(level.path);
    for (const rec of [...rows, ...early]) this.takeRecord(level, rec);
    early = null;
  }

  introduced = () => {};

  /** Legends need the declared reductions: the first level waits for what the stream says first. */
  introduction() {
    if (!this.source.live || this.run.meta) return null;
    return new Promise((resolve) => {
      this.introduced = () => resolve(null);
      setTimeout(resolve, PATIENCE_MS, null);
    });
  }

  /** @param {Level} level @param {string} name @param {any} data @param {(rec: any) => void} take */
  event(level, name, data, take) {
    if (level !== this.level) return;
    if (name === "record") {
      if (data.kind === "event") this.takeAlert(data, true);
      else if (data.kind === "meta") this.takeMeta(data);
      else take(data);
    } else if (name === "hello") this.hello(data);
    else if (name === "clock") this.run.clock = { ...data, at: Date.now() };
    else if (name === "complete") this.complete(data);
    if (name !== "hello") this.introduced();
    if (name === "resync") this.load(async () => level.track.seed(await this.source.series(level.path, {})));
    this.redraw();
  }

  /** @param {any} data */
  hello(data) {
    const id = String(data.run?.id ?? data.run?.started_ts ?? "");
    if (this.run.id && id && this.run.id !== id) location.reload();
    this.run.id = id;
    if (data.status) this.run.status = data.status;
  }

  /** The run is over: everything is fetched once more, so that a page left open stays browsable. @param {any} data */
  complete(data) {
    this.feed?.close();
    this.run.status = data.status === "complete" ? "done" : (data.status ?? "done");
    this.run.link = "ended";
    this.run.clock = { ...this.run.clock, eta: undefined, elapsed: data.seconds ?? this.header.elapsed() ?? undefined, at: Date.now() };
    this.load(async () => {
      const held = await this.source.snapshot();
      this.source = new SavedSource(held);
      this.redraw();
    });
  }

  /** Declarations come again and again in a history: the newest holds. @param {any} rec */
  takeMeta(rec) {
    if (this.run.meta && rec.seq < this.run.meta.seq) return;
    const isNews = this.source.live && this.run.meta && rec.seq > this.run.meta.seq;
    this.run.meta = rec;
    if (isNews) this.lookAgain();
  }

  /** @type {number | undefined} */ againTimer = undefined;

  /** Identity, settings and picture may come when the page is open already. */
  lookAgain() {
    clearTimeout(this.againTimer);
    this.againTimer = setTimeout(() => this.load(async () => {
      this.run.facts = await this.source.facts();
      await this.model.load();
    }), 300);
  }

  /** @param {Level} level @param {any} rec */
  takeRecord(level, rec) {
    if (rec.kind === "meta") this.takeMeta(rec);
    else if (rec.kind === "node" && rec.seq > level.lastSeq) {
      level.addRecord(rec);
      if (rec.path === level.path) this.detail?.add(rec);
      if (rec.path === "root" && rec.epoch_complete) this.epochDone(rec);
      if (this.run.status === "waiting") this.run.status = "running";
    }
  }

  /** @param {any} rec */
  epochDone(rec) {
    const { epochs } = this.run;
    const last = epochs.at(-1);
    if (!last || rec.epoch + 1 <= last.epoch) return;
    epochs.push({ ...last, epoch: rec.epoch + 1, eta: undefined, metrics: rec.metrics });
    if (last.gpus?.length > 1) this.load(async () => void (this.run.epochs = await this.source.epochs()));
  }

  /** @param {any} rec @param {boolean} [spoken] */
  takeAlert(rec, spoken = false) {
    if (!this.run.alerts.add(rec)) return;
    this.lost = this.run.alerts.lostPaths();
    this.level.childVersion += 1;
    if (spoken && rec.ts > this.openedAt - 5000) this.alerts.announce(rec);
    if (document.hidden) this.header.update();
  }

  /** Duration of the last drawing, and how many there were. */
  drawMs = 0;
  draws = 0;
  openedAt = Date.now();
  /** @type {Set<string>} */ lost = new Set();

  /** @param {string} link */
  linked(link) {
    if (link !== "live") this.introduced();
    if (link === "refused") this.login.show("");
    else this.run.link = link;
    this.redraw();
  }

  /** A path that the run does not know offers its nearest known ancestor. @param {Level} level */
  async unknown(level) {
    show(byId("unknown"), level.known === false);
    setAttr(document.body, "data-unknown", String(level.known === false));
    if (level.known !== false) return;
    const paths = new Set(await this.source.paths());
    let near = parentOf(level.path);
    while (near && !paths.has(near)) near = parentOf(near);
    byId("unknown-path").textContent = level.path;
    byId("unknown-link").replaceChildren(h("a", { href: linkTo(near ?? "root") }, near ?? "root"));
  }

  /** @param {[number, number] | null} range in units of the x axis */
  zoomTo(range) {
    if (JSON.stringify(range) === JSON.stringify(this.view.zoom)) return;
    this.view.zoom = range;
    this.detail = null;
    this.redraw();
    if (!range || !this.source.live) return;
    const { level } = this;
    const x = xOf(level.track, this);
    const times = level.track.t;
    const from = times[Math.max(0, indexAt(x, range[0]) - 1)];
    const to = times[Math.min(times.length - 1, indexAt(x, range[1]) + 1)];
    clearTimeout(this.zoomTimer);
    this.zoomTimer = setTimeout(() => this.load(async () => {
      const finer = new Track();
      finer.seed(await this.source.series(level.path, { from: Math.floor(from), to: Math.ceil(to) }));
      if (level !== this.level || this.view.zoom !== range || finer.length === 0) return;
      finer.base = level.track;
      finer.flags = level.track.flags;
      this.detail = finer;
      this.redraw();
    }), 120);
  }

  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    setTimeout(() => requestAnimationFrame(() => this.draw()), Math.max(0, BEAT_MS - (Date.now() - this.lastDraw)));
  }

  draw() {
    const began = performance.now();
    this.waiting = false;
    this.lastDraw = Date.now();
    if (this.level.known === true && !byId("unknown").hidden) this.load(() => this.unknown(this.level));
    this.header.update();
    this.alerts.update();
    this.controls.update();
    if (this.tab === "overview") for (const part of this.overview) part.update();
    else if (this.tab === "records") this.records.update();
    else this.timeline.update();
    setAttr(document.body, "data-shown", this.level.known ? this.level.path : null);
    this.drawMs = performance.now() - began;
    this.draws += 1;
  }
}

async function main() {
  const data = await embedded();
  const page = new Page(data ? new SavedSource(data) : new HttpSource());
  // For the console of a curious reader, and for tests.
  Object.assign(globalThis, { flodl: page });
  setAttr(document.documentElement, "data-saved", data ? "true" : null);
  addEventListener("hashchange", () => page.load(() => page.enter()));
  addEventListener("flodl-theme", () => {
    readPalette();
    page.redraw();
  });
  document.addEventListener("visibilitychange", () => page.redraw());
  setInterval(() => page.source.live && page.redraw(), 1000);
  await page.start();
}

main();
