"""One browser for the whole session; each test gets pages that must stay free of any complaint."""

import shutil
from importlib.resources import files

import pytest

from flodl.testing.fake_run import FakeRun, FakeRunShape, serve_board

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESKTOP = (1440, 900)
PHONE = (360, 740)
_WATCH_CSP = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (e) =>
  window.violations.push(`${e.violatedDirective} ${e.blockedURI}`));
"""


_UNTIL = """arg => new Promise((done, fail) => {{
  const end = Date.now() + {ms};
  const check = () => {{
    if (({predicate})(arg)) done(true);
    else if (Date.now() > end) fail(new Error("it did not come true in time"));
    else setTimeout(check, 20);
  }};
  check();
}})"""


def until(page, condition, arg=None, *, seconds=15):
    """Wait for a JavaScript condition: an expression, or a function of ``arg``.

    Playwright's own way compiles text inside the page, which the page's policy forbids.
    """
    predicate = condition if "=>" in condition.split("(")[0] else f"() => ({condition})"
    page.evaluate(_UNTIL.format(predicate=predicate, ms=int(seconds * 1000)), arg)


class Desk:
    """Opens pages, keeps what they complain about, and all that they request."""

    def __init__(self, browser):
        self._browser = browser
        self._contexts = []
        self._watched = []
        self.complaints = []
        self.requests = []
        self.allowed = ()

    def context(self, *, size=DESKTOP, theme="dark", touch=False, **options):
        context = self._browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme=theme,
            has_touch=touch,
            **options,
        )
        context.set_default_timeout(15_000)
        context.add_init_script(_WATCH_CSP)
        self._contexts.append(context)
        return context

    def page(self, context=None, **options):
        page = (context or self.context(**options)).new_page()
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))
        page.on("request", lambda request: self.requests.append(request.url))
        self._watched.append(page)
        return page

    def open(self, url, context=None, *, ready="#metrics-legend li", **options):
        page = self.page(context, **options)
        page.goto(url, wait_until="commit")
        if ready:
            page.wait_for_selector(ready, state="attached")
        return page

    @staticmethod
    def until(page, condition, arg=None, *, seconds=15):
        until(page, condition, arg, seconds=seconds)

    def _heard(self, message):
        if message.type in {"error", "warning"} and not any(
            a in message.text for a in self.allowed
        ):
            self.complaints.append(f"{message.type}: {message.text}")

    def close(self):
        for page in self._watched:
            if not page.is_closed():
                self.complaints += page.evaluate("window.violations ?? []")
        for context in self._contexts:
            context.close()
        assert self.complaints == []


@pytest.fixture(scope="session")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium on this machine")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def desk(browser):
    desk = Desk(browser)
    yield desk
    desk.close()


@pytest.fixture(scope="session")
def audit():
    """Returns the serious accessibility problems of a page."""
    package = pytest.importorskip("axe_playwright_python", reason="axe is not installed")
    script = files(package).joinpath("axe.min.js").read_text()

    def serious(page):
        page.evaluate(script)
        found = page.evaluate(
            "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa']})"
        )
        return [
            f"{v['id']}: {node['target']} {node['any'][:1]}"
            for v in found["violations"]
            if v["impact"] in {"serious", "critical"}
            for node in v["nodes"]
        ]

    return serious


class Live:
    """A run that goes on when it is told to, and its server."""

    def __init__(self, run, **options):
        self.run, self.board = run, run.board
        self._options = options
        self._server = serve_board(run.board, **options)
        self.port = self._server.port
        self.url = f"http://127.0.0.1:{self.port}/"

    @property
    def seq(self):
        """Number of the root's newest record."""
        return self.board.tree.current("root")["seq"]

    def step(self, page=None, count=1):
        """Report some windows; wait until a page that shows the root has drawn the last."""
        for _ in range(count):
            self.run.step()
        if page is not None:
            self.keep_up(page)

    def keep_up(self, page):
        until(page, "seq => flodl.level.lastSeq >= seq", self.seq)
        drawn = page.evaluate("flodl.redraw(), flodl.draws")
        until(page, "drawn => flodl.draws > drawn", drawn)

    def stop(self):
        self._server.stop()

    def restart(self):
        self._server = serve_board(self.board, port=self.port, **self._options)


def _started(epochs_done=3, **shape):
    run = FakeRun(FakeRunShape(**{"ranks": 3, "hosts": 2, "epochs": 20, "windows": 5, **shape}))
    run.run_epochs(epochs_done)
    return run


@pytest.fixture
def live():
    """Makes served runs: ``live(epochs_done, ranks=..., serve={...})``."""
    made = []

    def start(epochs_done=3, *, serve=None, **shape):
        made.append(Live(_started(epochs_done, **shape), **(serve or {})))
        return made[-1]

    yield start
    for one in made:
        one.stop()


@pytest.fixture(scope="module")
def cluster():
    """Ranks 0 and 1 on host-a, rank 2 on host-b, three epochs done; for tests that only read."""
    one = Live(_started(host_names=("host-a", "host-b")))
    yield one
    one.stop()
