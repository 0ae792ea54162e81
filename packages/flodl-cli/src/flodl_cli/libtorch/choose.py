"""Which published build suits the GPUs of a machine. Pure: devices and versions in, a build out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flodl_cli.libtorch.catalog import Bucket, Catalog, version_key
from flodl_cli.libtorch.coverage import cuda_token, uncovered
from flodl_cli.terminal import listed
from flodl_sys.gpu import GpuInfo, Vendor


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A build, and why it was chosen, in sentences for the user."""

    bucket: Bucket
    reasons: tuple[str, ...]


def choose(gpus: Sequence[GpuInfo], driver: str | None, catalog: Catalog, version: str) -> Choice:
    """The build of ``version`` for a machine with ``gpus`` and NVIDIA driver ``driver``.

    NVIDIA: the newest CUDA build that covers all cards and that the driver can run, else the one
    that covers most. AMD: the oldest ROCm build, since that loads on most systems.

    Raises:
        UnsupportedPlatformError: Nothing is published for the platform.
    """
    if not catalog.versions:
        raise catalog.no_archive()
    buckets = catalog.buckets(version)
    nvidia = [gpu for gpu in gpus if gpu.vendor is Vendor.NVIDIA]
    amd = [gpu for gpu in gpus if gpu.vendor is Vendor.AMD]
    if nvidia:
        return _for_nvidia(nvidia, amd, driver, buckets, catalog)
    if amd:
        return _for_amd(amd, buckets, version)
    return Choice(bucket=buckets[0], reasons=("no GPU was found",))


def _for_nvidia(
    nvidia: Sequence[GpuInfo],
    amd: Sequence[GpuInfo],
    driver: str | None,
    buckets: Sequence[Bucket],
    catalog: Catalog,
) -> Choice:
    rocm = [each for each in buckets if each.rocm]
    beside = (
        [f"AMD cards too: to serve them instead, fdl libtorch download --rocm {rocm[0].rocm}"]
        if amd and rocm
        else []
    )
    cuda = [each for each in buckets if each.cuda]
    if not cuda:
        return Choice(bucket=buckets[0], reasons=(f"no CUDA build for {catalog.platform}", *beside))
    usable = [each for each in cuda if _driver_runs(driver, each, catalog)]
    if not usable:
        limit = catalog.least_driver(cuda[0].cuda or "")
        reason = f"driver {driver} is too old for every CUDA build: it takes {limit} or newer"
        return Choice(bucket=buckets[0], reasons=(reason, *beside))
    left_out = {each.name: uncovered(each.archs, _archs(nvidia)) for each in usable}
    best = min(reversed(usable), key=lambda each: len(left_out[each.name]))
    missing = left_out[best.name]
    reasons = [f"newest CUDA build for {_cards(nvidia)}"]
    if missing:
        tokens = sorted({cuda_token(arch) for arch in _archs(nvidia)}, key=version_key)
        names = [gpu.name for gpu in nvidia if gpu.arch in missing]
        reasons = [
            f"no build covers all cards; this one leaves out {listed(names)}",
            f'to cover them: fdl libtorch build --archs "{";".join(tokens)}"',
        ]
    if len(usable) < len(cuda):
        newest = cuda[-1]
        limit = catalog.least_driver(newest.cuda or "")
        reasons.append(f"CUDA {newest.cuda} would take driver {limit} or newer; this is {driver}")
    return Choice(bucket=best, reasons=(*reasons, *beside))


def _for_amd(amd: Sequence[GpuInfo], buckets: Sequence[Bucket], version: str) -> Choice:
    rocm = [each for each in buckets if each.rocm]
    if not rocm:
        return Choice(bucket=buckets[0], reasons=(f"torch {version} has no ROCm build here",))
    oldest = rocm[0]
    missing = uncovered(oldest.archs, _archs(amd))
    if len(missing) == len(amd):
        reason = f"no ROCm build covers {_cards(amd)}; covered: {' '.join(oldest.archs)}"
        return Choice(bucket=buckets[0], reasons=(reason,))
    reasons = [f"oldest ROCm build for {_cards(amd)}: it loads on most systems"]
    if missing:
        reasons.append(f"it leaves out {' '.join(missing)}")
    return Choice(bucket=oldest, reasons=tuple(reasons))


def _driver_runs(driver: str | None, bucket: Bucket, catalog: Catalog) -> bool:
    limit = catalog.least_driver(bucket.cuda or "")
    return driver is None or limit is None or version_key(driver) >= version_key(limit)


def _archs(gpus: Sequence[GpuInfo]) -> list[str]:
    return [gpu.arch for gpu in gpus if gpu.arch is not None]


def _cards(gpus: Sequence[GpuInfo]) -> str:
    return listed(f"{gpu.name} ({gpu.arch or 'unknown'})" for gpu in gpus)
