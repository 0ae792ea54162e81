"""``download`` and ``available``: what PyTorch publishes, and how it comes here."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from flodl_cli.commands.libtorch.place import GlobalOption, JsonOption, Place, RootOption, place_of
from flodl_cli.errors import UsageError
from flodl_cli.host.driver import nvidia_driver
from flodl_cli.libtorch.catalog import Bucket, Catalog, load_catalog
from flodl_cli.libtorch.choose import choose
from flodl_cli.libtorch.coverage import uncovered
from flodl_cli.libtorch.store import Variant
from flodl_cli.libtorch.versions import wanted_version
from flodl_cli.terminal import Terminal
from flodl_sys import names as variables
from flodl_sys.gpu import GpuScan, scan_gpus

_MIB = 1 << 20


def register(app: typer.Typer) -> None:
    """Add the commands of this module to ``app``."""
    app.command("download")(download_command)
    app.command("available")(available_command)


def download_command(  # noqa: PLR0913 - one parameter for each flag of the command
    ctx: typer.Context,
    *,
    cpu: Annotated[bool, typer.Option("--cpu", help="The build without GPU code.")] = False,
    cuda: Annotated[str | None, typer.Option(help="CUDA version, such as 13.0.")] = None,
    rocm: Annotated[str | None, typer.Option(help="ROCm version, such as 7.2.")] = None,
    version: Annotated[str | None, typer.Option(help="Version of torch.")] = None,
    path: Annotated[Path | None, typer.Option(help="Install into this folder instead.")] = None,
    activate: Annotated[bool, typer.Option("--activate/--no-activate")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace what is installed.")] = False,
    mirror: Annotated[
        str | None, typer.Option(envvar=variables.LIBTORCH_MIRROR.name, help="Other address.")
    ] = None,
    proxy: Annotated[str | None, typer.Option(help="Proxy, such as http://HOST:PORT.")] = None,
    sha256: Annotated[str | None, typer.Option(help="Checksum the file must have.")] = None,
    deps: Annotated[
        bool, typer.Option("--deps/--no-deps", help="Fetch NVIDIA's libraries where they lack.")
    ] = True,
    jobs: Annotated[
        int | None, typer.Option(help="How many of these at a time (uv only).", min=1)
    ] = None,
    root: RootOption = None,
    is_global: GlobalOption = False,
    as_json: JsonOption = False,
) -> int:
    """Fetch the build that suits this machine. It is checked, and becomes the active one."""
    from flodl_cli.libtorch.download import Options, install, installed, plan

    place = place_of(ctx, root, is_global=is_global)
    terminal = place.context.terminal
    catalog = load_catalog(place.platform)
    bucket, chosen_version = _choose_build(place, catalog, cpu=cpu, cuda=cuda, rocm=rocm,
                                           version=version)  # fmt: skip
    options = Options(
        base=mirror,
        sha256=_checked_digest(sha256),
        path=path,
        with_packages=deps,
        jobs=jobs,
        force=force,
    )
    planned = plan(catalog, place.store, bucket, chosen_version, options)
    there = None if force else installed(planned, place.store)
    if dry_run:
        if as_json:
            place.print_json({"variant": planned.variant_id, "url": planned.url,
                              "sha256": planned.sha256, "path": str(planned.target),
                              "installed": there is not None})  # fmt: skip
        else:
            place.show(f"would fetch {planned.url}\nas {planned.variant_id} in {planned.target}")
        return 0
    if there is not None:
        terminal.say(f"{there.id} (torch {there.metadata.torch}) is installed already")
        return _finish(place, there, activate=activate, as_json=as_json)
    terminal.say(f"fetching {planned.url}")
    with _fetcher(proxy, terminal, planned.target) as fetcher:
        try:
            variant = install(planned, place.store, fetcher, terminal.say)
        except KeyboardInterrupt:
            terminal.note("what has arrived is kept: resume with the same command")
            raise
    return _finish(place, variant, activate=activate, as_json=as_json)


def available_command(
    ctx: typer.Context, root: RootOption = None, as_json: JsonOption = False
) -> int:
    """List what is published for this platform. A * marks what covers all GPUs here."""
    place = place_of(ctx, root, is_global=False)
    catalog = load_catalog(place.platform)
    if not catalog.versions:
        raise catalog.no_archive()
    gpus = [gpu.arch for gpu in scan_gpus().gpus if gpu.arch is not None]
    rows = [
        (version, bucket, bool(gpus) and not uncovered(bucket.archs, gpus))
        for version in catalog.versions
        for bucket in catalog.buckets(version)
    ]
    if as_json:
        place.print_json([_as_data(version, bucket, covers) for version, bucket, covers in rows])
        return 0
    lines = []
    for version in catalog.versions:
        names = [f"{b.name}{'*' if covers else ''}" for v, b, covers in rows if v == version]
        default = "  (default)" if version == catalog.default_version else ""
        lines.append(f"{version:8}{' '.join(names)}{default}")
    ending = "* covers all GPUs of this machine" if gpus else "no GPU was found on this machine"
    place.show("\n".join((*lines, ending)))
    return 0


class _Progress:
    """Shows how far a download is: in place on a terminal, else a line for every tenth."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._began: tuple[float, int] | None = None
        self._tenths = 0
        self._shown_at = 0.0

    def __call__(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        self._began = self._began or (now, done)
        tenths = done * 10 // total if total else 0
        settled = tenths > self._tenths or done == total
        if not settled and now - self._shown_at < 0.1:
            return
        self._tenths, self._shown_at = tenths, now
        self._terminal.status(self._text(done, total, now), settled=settled)

    def _text(self, done: int, total: int | None, now: float) -> str:
        assert self._began is not None
        text = f"{done / _MIB:.0f} MiB"
        if total:
            text = f"{done * 100 // total:3d}%  {done / _MIB:.0f} of {total / _MIB:.0f} MiB"
        seconds, arrived = now - self._began[0], done - self._began[1]
        if seconds > 1 and arrived:
            speed = arrived / seconds
            text += f"  {speed / _MIB:.1f} MiB/s"
            if total:
                text += f"  {(total - done) / speed:.0f} s left"
        return text


def _fetcher(proxy: str | None, terminal: Terminal, target: Path) -> Any:
    """A context that gives a fetcher and closes its connections."""
    import contextlib

    from flodl_cli.libtorch.download import refuse_small_disk
    from flodl_cli.net.http import Fetcher, open_client

    @contextlib.contextmanager
    def opened() -> Any:
        with open_client(proxy) as client:
            yield Fetcher(
                client,
                on_size=lambda total: refuse_small_disk(_existing(target), total),
                on_progress=_Progress(terminal),
            )

    return opened()


def _existing(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.is_dir())


def _choose_build(
    place: Place,
    catalog: Catalog,
    *,
    cpu: bool,
    cuda: str | None,
    rocm: str | None,
    version: str | None,
) -> tuple[Bucket, str]:
    """The build and its version; what was decided is told."""
    given = [flag for flag, value in (("--cpu", cpu), ("--cuda", cuda), ("--rocm", rocm)) if value]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} name different builds", hint="give one of them")
    terminal = place.context.terminal
    wanted = wanted_version(place.directory, catalog)
    if version is None:
        terminal.say(f"torch {wanted.version}, from {wanted.source}")
    chosen_version = version or wanted.version
    if not given:
        return _automatic(terminal, catalog, chosen_version)
    name = "cpu"
    if cuda or rocm:
        name = catalog.bucket_name("cuda" if cuda else "rocm", cuda or rocm or "")
    elif not catalog.versions:
        raise catalog.no_archive()
    bucket = catalog.bucket(name, chosen_version)
    if bucket is not None:
        return bucket, chosen_version
    newest = catalog.newest_with(name)
    has = ", ".join(each.name for each in catalog.buckets(chosen_version))
    if version is not None or newest is None:
        raise UsageError(
            f"torch {chosen_version} is not published for {name}; its builds: {has}",
            hint=f"the newest version with {name} is {newest}",
        )
    terminal.say(f"torch {chosen_version} has no {name}: taking {newest}, the newest that has it")
    found = catalog.bucket(name, newest)
    assert found is not None
    return found, newest


def _automatic(terminal: Terminal, catalog: Catalog, version: str) -> tuple[Bucket, str]:
    scan: GpuScan = scan_gpus()
    for note in scan.notes:
        terminal.note(note.message)
    driver = nvidia_driver() if any(gpu.vendor == "nvidia" for gpu in scan.gpus) else None
    choice = choose(scan.gpus, driver, catalog, version)
    terminal.say(f"{choice.bucket.name}: {'; '.join(choice.reasons)}")
    return choice.bucket, version


def _checked_digest(text: str | None) -> str | None:
    if text is None:
        return None
    digest = text.lower()
    if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise UsageError(f"--sha256 {text!r} is no SHA-256", hint="give its 64 hexadecimal digits")
    return digest


def _finish(place: Place, variant: Variant, *, activate: bool, as_json: bool) -> int:
    if activate:
        place.store.activate(variant.id)
    if as_json:
        place.print_json({"variant": variant.id, "active": activate, "path": str(variant.prefix),
                          "torch": variant.metadata.torch})  # fmt: skip
        return 0
    state = " (active)" if activate else ""
    place.show(
        f"{variant.id}{state}: torch {variant.metadata.torch}\n"
        'next: eval "$(fdl libtorch env)", or `fdl libtorch verify`'
    )
    return 0


def _as_data(version: str, bucket: Bucket, covers: bool) -> dict[str, Any]:
    return {
        "version": version,
        "bucket": bucket.name,
        "cuda": bucket.cuda,
        "rocm": bucket.rocm,
        "archs": list(bucket.archs),
        "covers_gpus": covers,
    }
