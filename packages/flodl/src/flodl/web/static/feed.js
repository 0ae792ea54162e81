// @ts-check
// The one connection of a page: a stream that resumes by id, or a poll where no stream is to be had.

const RETRY_MS = 2000;
const POLL_MS = 1000;
const STREAM_AGAIN_MS = 30000;
/** Of the children's numbers: more than anybody sees, and half the bytes. */
const DIGITS = "7";

/**
 * @typedef {object} Handlers
 * @property {(name: string, data: any) => void} event record, hello, clock, complete, resync
 * @property {(link: string) => void} link live, polling, lost, refused
 */

export class Feed {
  /** @param {import("./source.js").HttpSource} source @param {string} path @param {Handlers} handlers */
  constructor(source, path, handlers) {
    this.source = source;
    this.path = path;
    this.handlers = handlers;
    /** Newest seq that this feed has delivered. */
    this.since = -1;
    this.closed = false;
    /** @type {number | undefined} */ this.timer = undefined;
    /** @type {EventSource | null} */ this.stream = null;
    this.open();
  }

  open() {
    const fields = new URLSearchParams({ path: this.path, alerts: "root", clock: "1", limit: "64", digits: DIGITS });
    if (this.since >= 0) fields.set("since", String(this.since));
    const stream = new EventSource(`/stream?${fields}`);
    this.stream = stream;
    stream.onopen = () => this.handlers.link("live");
    stream.onerror = () => this.failed(stream);
    for (const name of ["hello", "record", "clock", "complete", "resync"])
      stream.addEventListener(name, (/** @type {any} */ message) => this.take(name, message.data));
  }

  /** @param {string} name @param {string} text */
  take(name, text) {
    if (this.closed) return;
    const data = JSON.parse(text);
    if (name === "record" && typeof data.seq === "number") {
      if (data.kind !== "meta" && data.seq <= this.since) return;
      this.since = Math.max(this.since, data.seq);
    }
    this.handlers.event(name, data);
    if (name === "resync") this.again();
  }

  /** What was missed is no longer kept: begins anew from what is. */
  again() {
    this.stream?.close();
    this.since = -1;
    this.open();
  }

  /** The browser retries broken connections itself, but gives up on any answer that is no stream. @param {EventSource} stream */
  failed(stream) {
    if (this.closed || stream !== this.stream) return;
    if (stream.readyState !== EventSource.CLOSED) {
      this.handlers.link("lost");
      return;
    }
    this.stream = null;
    this.probe();
  }

  /** Is the server away, does it want a login, or has it no stream left for this page? */
  async probe() {
    try {
      const answer = await fetch(`/history?path=${encodeURIComponent(this.path)}&n=1`);
      if (this.closed) return;
      if (answer.status === 401) this.handlers.link("refused");
      else if (answer.ok) this.poll(Date.now() + STREAM_AGAIN_MS);
      else this.retry();
    } catch {
      if (!this.closed) this.retry();
    }
  }

  retry() {
    this.handlers.link("lost");
    this.timer = setTimeout(() => this.open(), RETRY_MS);
  }

  /** @param {number} until when to ask for a stream again */
  async poll(until) {
    try {
      const fields = this.since >= 0 ? { since: this.since, n: 8192 } : { n: 512 };
      const rows = await this.source.history(this.path, fields);
      const alerts = await this.source.alerts();
      const { status } = await this.source.health();
      if (this.closed) return;
      this.handlers.link("polling");
      // Alerts of the whole run carry seqs above rows still to come: they do not move `since`.
      for (const alert of alerts) this.handlers.event("record", alert);
      for (const row of rows) this.take("record", JSON.stringify(row));
      if (status !== "running") this.handlers.event("complete", { status });
      if (this.closed) return;
    } catch {
      if (!this.closed) this.probe();
      return;
    }
    if (Date.now() >= until) this.open();
    else this.timer = setTimeout(() => this.poll(until), POLL_MS);
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.stream?.close();
    this.stream = null;
  }
}
