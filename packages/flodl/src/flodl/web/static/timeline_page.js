// @ts-check
// One timeline as a page of its own; its data stands in the page.

import { byId, setText } from "./dom.js";
import { LaneView } from "./laneview.js";
import { readPalette } from "./paint.js";
import { embedded } from "./payload.js";
import { Recording } from "./recording.js";

async function showTimeline() {
  const recording = new Recording(await embedded());
  const view = new LaneView((text) => setText(byId("polite"), text));
  setText(byId("timeline-host"), recording.host);
  byId("timeline-box").append(view.el);
  view.show(recording);
  // For the console of a curious reader, and for tests.
  Object.assign(globalThis, { flodl: view });
  byId("theme").addEventListener("click", () => dispatchEvent(new Event("flodl-theme-next")));
  addEventListener("flodl-theme", () => {
    readPalette();
    setText(byId("theme-word"), document.documentElement.dataset.choice ?? "auto");
    view.draw();
  });
  setText(byId("theme-word"), document.documentElement.dataset.choice ?? "auto");
}

showTimeline();
