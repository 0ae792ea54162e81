"""Compiles an NCCL of a chosen version for chosen GPUs: all hosts of a run need the same."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flodl_cli.errors import BuildError, UsageError
from flodl_cli.host.nccl import find_nccl, nccl_version
from flodl_cli.host.process import ask
from flodl_cli.libtorch.active import active_variant, environment_prefix
from flodl_cli.libtorch.build import CONTAINER, CUDA_IMAGES, docker_works, run_steps
from flodl_cli.libtorch.install import staged
from flodl_cli.libtorch.store import BUILD_CACHE, Store

_REPOSITORY = "https://github.com/NVIDIA/nccl"
_TAG = re.compile(r"v\d+\.\d+\.\d+(-\d+)?")
_LIBRARY = "libnccl.so.2"


@dataclass(frozen=True, kw_only=True, slots=True)
class NcclPlan:
    """What to compile: a tag of NCCL's repository, for ``archs`` in ascending order."""

    tag: str
    archs: tuple[str, ...]
    jobs: int
    cuda: str

    @property
    def name(self) -> str:
        """``v2.27.5-sm61-sm120``."""
        plain = (re.sub(r"\D", "", arch) for arch in self.archs)
        version = self.tag.partition("-")[0]
        return "-".join(dict.fromkeys((version, *(f"sm{digits}" for digits in plain))))

    @property
    def image(self) -> str:
        """Name of the image that the build makes."""
        return f"flodl-nccl:{self.name}"

    @property
    def gencode(self) -> str:
        """What the compiler is told to make code for."""
        flags = []
        for arch in self.archs:
            bare, _, ptx = arch.partition("+")
            digits = bare.replace(".", "")
            flags.append(f"-gencode=arch=compute_{digits},code=sm_{digits}")
            if ptx:
                flags.append(f"-gencode=arch=compute_{digits},code=compute_{digits}")
        return " ".join(flags)

    def folder(self, store: Store) -> Path:
        """Where the result goes."""
        return store.root / "nccl" / "builds" / self.name


def check_tag(tag: str) -> str:
    """The tag, if NCCL's tags look like that.

    Raises:
        UsageError: They do not.
    """
    if _TAG.fullmatch(tag) is None:
        raise UsageError(f"--tag {tag!r} is no tag of NCCL", hint="such as --tag v2.27.5-1")
    return tag


def used_tag(directory: Path, environ: Mapping[str, str]) -> str:
    """The tag of the NCCL that the torch of a project brings.

    Raises:
        UsageError: There is no torch, or none with NCCL.
    """
    prefix = environment_prefix(directory, environ)
    if prefix is None:
        variant = active_variant(directory, environ)
        prefix = variant.prefix if variant is not None else None
    library = find_nccl(prefix) if prefix is not None else None
    version = nccl_version(library) if library is not None else None
    if version is None:
        raise UsageError(
            f"no NCCL in {prefix}" if prefix is not None else "no torch is here to match",
            hint="name the version: --tag v2.27.5-1",
        )
    return f"v{version}-1"


def nccl_dockerfile(planned: NcclPlan) -> str:
    """The recipe of the build."""
    return f"""\
FROM nvidia/cuda:{CUDA_IMAGES[planned.cuda]}-devel-ubuntu24.04
RUN apt-get update && apt-get install -y --no-install-recommends \\
    git make g++ python3 ca-certificates
RUN git clone --depth 1 --branch {planned.tag} {_REPOSITORY} /src
RUN make -C /src -j {planned.jobs} src.build NVCC_GENCODE={shlex.quote(planned.gencode)} && \\
    mkdir -p /out && cp -a /src/build/lib /src/build/include /out/
"""


def nccl_commands(planned: NcclPlan, context: Path, out: Path) -> list[list[str]]:
    """The commands that make the image, and take its result out of a container of it."""
    return [
        ["docker", "build", "--tag", planned.image, str(context)],
        ["docker", "create", "--name", CONTAINER, planned.image],
        ["docker", "cp", f"{CONTAINER}:/out/.", str(out)],
        ["docker", "rm", CONTAINER],
    ]


def context_folder(store: Store) -> Path:
    """Where the recipe of the build is written."""
    return store.root / BUILD_CACHE / "nccl"


def build_nccl(planned: NcclPlan, store: Store, environ: Mapping[str, str]) -> Path:
    """Compile, and return the library; what is there already is not compiled again.

    Raises:
        BuildError: There is no Docker, a step failed, or it made no library.
    """
    target = planned.folder(store)
    library = target / "lib" / _LIBRARY
    if library.is_file():
        return library
    if not docker_works():
        raise BuildError(
            "NCCL is compiled in a container, and Docker does not answer", hint="start Docker"
        )
    with store.locked(), staged(target) as staging:
        context = context_folder(store)
        context.mkdir(parents=True, exist_ok=True)
        (context / "Dockerfile").write_text(nccl_dockerfile(planned), encoding="utf-8")
        *work, clean_up = nccl_commands(planned, context, staging)
        try:
            run_steps(work, context, {**environ, "DOCKER_BUILDKIT": "1"})
        finally:
            ask(clean_up)  # there is nothing to remove after a failed build, and that is fine
        if not (staging / "lib" / _LIBRARY).is_file():
            raise BuildError(
                f"the build of NCCL {planned.tag} made no {_LIBRARY}", hint="its output says why"
            )
    return library
