// @ts-check
// The timeline tab: it follows the crumb. The root shows the controller, a host shows that host.

import { byId, setText, show } from "./dom.js";
import { LaneView } from "./laneview.js";
import { Recording } from "./recording.js";

const AGAIN_MS = 5000;

export class TimelinePanel {
  /** @param {import("./app.js").Page} page */
  constructor(page) {
    this.page = page;
    this.view = new LaneView(page.say);
    byId("timeline-box").append(this.view.el);
    this.host = "";
    this.asked = 0;
  }

  reset() {
    this.host = "";
    this.asked = 0;
  }

  update() {
    const { page } = this;
    const resting = this.asked > 0 && (!page.source.live || Date.now() - this.asked < AGAIN_MS || this.zoomed());
    if (resting) {
      this.view.draw();
      return;
    }
    this.asked = Date.now();
    const { level } = page;
    page.load(async () => {
      const hosts = await page.source.timelineHosts();
      const names = level.path.split("/").slice(1);
      // Without a tier of hosts, ranks run where the controller does.
      const belowRoot = names.length === 1 && !level.interior;
      const host = names.length ? (names.find((n) => hosts.hosts.includes(n)) ?? (belowRoot ? hosts.controller : null)) : (hosts.controller ?? hosts.hosts[0]);
      const data = host ? await page.source.timeline(host) : null;
      if (level !== page.level) return;
      show(byId("timeline-none"), !data);
      show(byId("timeline-box"), Boolean(data));
      setText(byId("timeline-host"), host ?? "");
      if (data) this.view.show(new Recording(data));
    });
  }

  /** A reader who has zoomed in keeps the picture. */
  zoomed() {
    return this.view.frame.from > 0 || this.view.frame.to < this.view.end;
  }
}
