// @ts-check
// Fingers on a chart: one moves the cursor, two zoom. Vertical swipes still scroll the page.

/** @param {any} u a uPlot @param {(range: [number, number] | null) => void} zoom */
export function touchCursor(u, zoom) {
  /** @type {Map<number, number>} x by pointer */
  const fingers = new Map();
  /** @type {{span: number, center: number, min: number, max: number} | null} */
  let pinch = null;
  const over = u.over;
  const local = (/** @type {PointerEvent} */ e) => e.clientX - over.getBoundingClientRect().left;

  over.addEventListener("pointerdown", (/** @type {PointerEvent} */ e) => {
    if (e.pointerType !== "touch") return;
    fingers.set(e.pointerId, local(e));
    if (fingers.size === 2) {
      const [a, b] = [...fingers.values()];
      pinch = { span: Math.max(Math.abs(a - b), 1), center: u.posToVal((a + b) / 2, "x"), min: u.scales.x.min, max: u.scales.x.max };
    } else place(local(e));
  });
  over.addEventListener("pointermove", (/** @type {PointerEvent} */ e) => {
    if (!fingers.has(e.pointerId)) return;
    fingers.set(e.pointerId, local(e));
    if (pinch && fingers.size === 2) spread(pinch);
    else place(local(e));
  });
  for (const name of ["pointerup", "pointercancel"])
    over.addEventListener(name, (/** @type {PointerEvent} */ e) => {
      fingers.delete(e.pointerId);
      pinch = null;
    });

  /** @param {number} x */
  function place(x) {
    u.setCursor({ left: x, top: over.clientHeight / 2 });
  }

  /** @param {{span: number, center: number, min: number, max: number}} start */
  function spread(start) {
    const [a, b] = [...fingers.values()];
    const scale = start.span / Math.max(Math.abs(a - b), 1);
    if (scale > 1.05 && start.max - start.min >= u.data[0].at(-1) - u.data[0][0]) zoom(null);
    else zoom([start.center - (start.center - start.min) * scale, start.center + (start.max - start.center) * scale]);
  }
}
