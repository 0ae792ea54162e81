"""Downloads a published libtorch, checks it, and puts it in place as a whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flodl_cli.errors import ChecksumError, DownloadError, LibtorchError
from flodl_cli.host.packages import package_client
from flodl_cli.host.platform import Platform
from flodl_cli.libtorch.catalog import Archive, Bucket, Catalog
from flodl_cli.libtorch.examine import facts, library
from flodl_cli.libtorch.install import staged
from flodl_cli.libtorch.metadata import NO_CUDA, Metadata, write_metadata
from flodl_cli.libtorch.naming import build_name, free_id
from flodl_cli.libtorch.repair import repair
from flodl_cli.libtorch.store import DOWNLOADS, Store, Variant
from flodl_cli.libtorch.verify import Status, static_checks
from flodl_cli.libtorch.wheel import find_prefix, link, now
from flodl_cli.net.archive import extract
from flodl_cli.net.http import Fetched, Fetcher, forget
from flodl_cli.terminal import listed

_ROOM_FACTOR = 3.2
"""Room that is needed, as a multiple of the archive: the archive and what is in it."""


class _WrongArchive(LibtorchError):
    """What was fetched is whole, and is not the libtorch that was asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What to download and where to put it; ``archive`` is ``None`` where a wheel stands in."""

    platform: Platform
    bucket: Bucket
    version: str
    variant_id: str
    target: Path
    url: str
    archive: Archive | None
    sha256: str | None
    with_packages: bool = True
    jobs: int | None = None
    alternatives: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What the user may say about a download, besides which build it is."""

    base: str | None = None
    sha256: str | None = None
    path: Path | None = None
    with_packages: bool = True
    jobs: int | None = None
    force: bool = False


def plan(catalog: Catalog, store: Store, bucket: Bucket, version: str, options: Options) -> Plan:
    """Everything about a download that can be said before it starts.

    Raises:
        UnsupportedPlatformError: Nothing is published for the platform.
    """
    platform = catalog.platform
    archive = None
    url = f"torch=={version}"
    if platform is not Platform.LINUX_AARCH64:
        archive = catalog.archive(bucket.name, version)
        url = f"{(options.base or catalog.base).rstrip('/')}/{archive.path}"
    name = build_name(bucket.name, platform)
    kind = "linked" if options.path else "precompiled"
    variant_id = free_id(
        store, kind, name, version, lambda other: options.force or other.torch == version
    )
    return Plan(
        platform=platform,
        bucket=bucket,
        version=version,
        variant_id=variant_id,
        target=options.path.absolute() if options.path else store.root / variant_id,
        url=url,
        archive=archive,
        sha256=(archive.sha256 if archive else None) or options.sha256,
        with_packages=options.with_packages,
        jobs=options.jobs,
        alternatives=tuple(each.name for each in catalog.buckets(version)),
    )


def installed(planned: Plan, store: Store) -> Variant | None:
    """The variant of the plan, when it is there already and whole."""
    for variant in store.variants():
        same = variant.metadata.torch == planned.version and variant.id == planned.variant_id
        if same and _is_whole(variant, planned.platform):
            return variant
    return None


def install(planned: Plan, store: Store, fetcher: Fetcher, tell: Callable[[str], None]) -> Variant:
    """Carry out the plan; what was installed before stays as it is when anything fails.

    When another fdl has installed the same while this one waited for it, that is taken.

    Raises:
        FdlError: The file cannot be fetched, is not the one that was published, or does not hold
            a libtorch for this machine.
    """
    was_there = installed(planned, store) is not None
    with store.locked():
        there = installed(planned, store)
        if there is not None and not was_there:
            return there
        if planned.archive is None:
            _from_wheel(planned, tell)
        else:
            fetched = _fetch(planned, planned.archive, store, fetcher)
            _from_archive(planned, fetched, tell)
            forget(fetched.path)
        if planned.target == store.root / planned.variant_id:
            return store.variant(planned.variant_id)
        name = planned.variant_id.partition("/")[2]
        return link(store, find_prefix(planned.target), planned.platform, name=name)


def refuse_small_disk(folder: Path, archive_bytes: int) -> None:
    """Stop before a download that cannot be unpacked.

    Raises:
        LibtorchError: The file system of ``folder`` has too little room.
    """
    needed, free = int(archive_bytes * _ROOM_FACTOR), shutil.disk_usage(folder).free
    if free < needed:
        raise LibtorchError(
            f"{needed >> 20} MiB are needed, and the file system of {folder} has {free >> 20} MiB",
            hint="make room (fdl libtorch prune), or use another place: --path or FLODL_HOME",
        )


def _fetch(planned: Plan, archive: Archive, store: Store, fetcher: Fetcher) -> Fetched:
    # On the file system of the destination, never in a small temporary one.
    folder = planned.target.parent if store.root not in planned.target.parents else store.root
    part = folder / DOWNLOADS / f"{archive.file_name}.part"
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        if archive.size_bytes is not None:
            refuse_small_disk(part.parent, archive.size_bytes)
        fetched = fetcher.fetch(planned.url, part)
    except DownloadError as error:
        if error.status in (403, 404):
            error.hint = f"builds of {planned.version}: {listed(planned.alternatives)}"
        raise
    except OSError as error:
        raise LibtorchError(
            f"{part} cannot be written: {error.strerror}",
            hint="what has arrived is kept; make room, then run the same command again",
        ) from error
    expected = planned.sha256 or fetched.told_sha256
    if expected is not None and fetched.sha256 != expected.lower():
        forget(part)
        raise ChecksumError(
            f"{archive.file_name} has the SHA-256 {fetched.sha256}, and {expected} was published",
            hint="the file is deleted; run the command again, and with another --mirror if it "
            "happens again",
        )
    return fetched


def _from_archive(planned: Plan, fetched: Fetched, tell: Callable[[str], None]) -> None:
    expected = planned.sha256 or fetched.told_sha256
    if expected is None:
        tell(
            f"nobody published a checksum of {planned.url}: it is unverified; "
            f"its SHA-256 is {fetched.sha256}"
        )
    tell("unpacking")
    try:
        with staged(planned.target) as staging:
            extract(fetched.path, staging, _without_top)
            _finish(
                planned,
                staging,
                tell,
                sha256=fetched.sha256,
                verified="no" if expected is None else "yes",
            )
    except (ChecksumError, _WrongArchive):  # after all else, unpacking is tried again
        forget(fetched.path)
        raise


def _from_wheel(planned: Plan, tell: Callable[[str], None]) -> None:
    """The parts of the torch wheel that make a libtorch, for Linux on ARM."""
    client = package_client(planned.jobs)
    with (
        staged(planned.target) as staging,
        tempfile.TemporaryDirectory(dir=planned.target.parent) as workspace,
    ):
        folder = Path(workspace)
        pins = client.resolve(planned.url, "cpu", folder)
        torch = [pin for pin in pins if pin.name == "torch"]
        if not torch:
            raise LibtorchError(f"the package index has no {planned.url} for this machine")
        tell(f"fetching {torch[0].name} {torch[0].version} from the package index")
        client.install(torch, folder / "site", "cpu", folder)
        for part in ("lib", "include", "share"):
            (folder / "site" / "torch" / part).rename(staging / part)
        libraries = folder / "site" / "torch.libs"
        if libraries.is_dir():
            libraries.rename(staging / "torch.libs")
            _point_at(staging / "lib", staging / "torch.libs")
        (staging / "build-version").write_text(f"{planned.version}+cpu\n", encoding="utf-8")
        _finish(planned, staging, tell, sha256="", verified="yes")


def _point_at(lib: Path, libraries: Path) -> None:
    """Links for the libraries that the wheel keeps beside its package."""
    for file in sorted(libraries.iterdir()):
        if not (lib / file.name).exists():
            (lib / file.name).symlink_to(Path("..") / libraries.name / file.name)


def _finish(
    planned: Plan, staging: Path, tell: Callable[[str], None], *, sha256: str, verified: str
) -> None:
    if library(staging / "lib", "torch") is None:
        raise _WrongArchive(
            f"{planned.url} holds no libtorch: there is no lib/libtorch in it",
            hint="check --mirror and --sha256",
        )
    read, bucket = facts(staging), planned.bucket
    if read.get("torch", planned.version) != planned.version:
        raise _WrongArchive(
            f"{planned.url} holds torch {read['torch']}, and {planned.version} was asked for",
            hint="nothing was installed; check --mirror",
        )
    metadata = Metadata(
        **{
            "torch": planned.version,
            "cuda": bucket.cuda or NO_CUDA,
            "rocm": bucket.rocm or "",
            **read,
            "archs": read["archs"] or " ".join(bucket.archs) or "cpu",
            "source": "precompiled",
            "variant": bucket.name,
            "platform": planned.platform,
            "url": planned.url,
            "sha256": sha256,
            "verified": verified,
            "created": now(),
        }
    )
    for line in repair(
        staging, metadata, with_packages=planned.with_packages, jobs=planned.jobs, tell=tell
    ):
        tell(line)
    write_metadata(staging, metadata)
    _refuse_broken(Variant(id=planned.variant_id, directory=staging, metadata=metadata), planned)


def _refuse_broken(variant: Variant, planned: Plan) -> None:
    for check in static_checks(variant, planned.platform):
        if check.status is Status.FAIL and check.name == "files":
            raise _WrongArchive(
                f"{planned.url}: {check.message}", hint="nothing was installed; check --mirror"
            )


def _is_whole(variant: Variant, platform: Platform) -> bool:
    checks = static_checks(variant, platform)
    return all(check.status is not Status.FAIL for check in checks if check.name == "files")


def _without_top(name: str) -> str | None:
    """A member's path without the folder ``libtorch/`` that archives put everything in."""
    return name.removeprefix("libtorch/") or None
