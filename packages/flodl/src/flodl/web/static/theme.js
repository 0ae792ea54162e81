// @ts-check
// A classic script in the head: the colors are decided before the first paint, so nothing flashes.
(() => {
  const KEY = "flodl-theme";
  const CHOICES = ["auto", "light", "dark"];
  const root = document.documentElement;
  const light = matchMedia("(prefers-color-scheme: light)");

  /** The reader's own choice; storage is refused to some pages opened from disk. */
  function stored() {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return root.dataset.choice ?? null;
    }
  }

  function apply() {
    const wanted = stored() ?? root.dataset.pin ?? "auto";
    const choice = CHOICES.includes(wanted) ? wanted : "auto";
    root.dataset.choice = choice;
    root.dataset.theme = choice !== "auto" ? choice : light.matches ? "light" : "dark";
    dispatchEvent(new Event("flodl-theme"));
  }

  addEventListener("flodl-theme-next", () => {
    const next = CHOICES[(CHOICES.indexOf(root.dataset.choice ?? "auto") + 1) % CHOICES.length];
    root.dataset.choice = next;
    try {
      localStorage.setItem(KEY, next);
    } catch {
      // Not remembered, but this page still changes: stored() falls back to the attribute.
    }
    apply();
  });
  light.addEventListener("change", apply);
  apply();
})();
