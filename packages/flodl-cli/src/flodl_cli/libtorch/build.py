"""Compiles libtorch from PyTorch's source for chosen GPUs, in a container or on this machine."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flodl_cli.errors import BuildError, LaunchError, UsageError
from flodl_cli.host.process import ask, run_child
from flodl_cli.libtorch.catalog import version_key
from flodl_cli.libtorch.coverage import parse_arch
from flodl_cli.libtorch.examine import facts
from flodl_cli.libtorch.install import staged
from flodl_cli.libtorch.metadata import Metadata, write_metadata
from flodl_cli.libtorch.store import BUILD_CACHE, Store, Variant
from flodl_cli.libtorch.wheel import now

_REPOSITORY = "https://github.com/pytorch/pytorch"
CUDA_IMAGES = {"12.8": "12.8.1", "13.0": "13.0.1"}
_FIRST_ARCH_OF_CUDA_13 = (7, 5)
_TOOLS = {
    "nvcc": ("nvidia-cuda-toolkit", "cuda-toolkit", None),
    "cmake": ("cmake", "cmake", "cmake"),
    "git": ("git", "git", "git"),
    "g++": ("g++", "gcc-c++", "gcc"),
}
_SETTINGS = {
    "USE_CUDA": "1",
    "USE_CUDNN": "1",
    "USE_NCCL": "1",
    "USE_DISTRIBUTED": "1",
    "BUILD_SHARED_LIBS": "ON",
    "CMAKE_BUILD_TYPE": "Release",
    "BUILD_PYTHON": "OFF",
    "BUILD_TEST": "OFF",
}
CONTAINER = f"flodl-libtorch-{os.getpid()}"
CUDA_VERSIONS = tuple(CUDA_IMAGES)


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildPlan:
    """What to compile: ``archs`` in ascending order, for one torch and one CUDA version."""

    archs: tuple[str, ...]
    jobs: int
    version: str
    cuda: str
    docker: bool

    @property
    def variant_id(self) -> str:
        """``builds/sm61-sm120``."""
        plain = (re.sub(r"\D", "", arch) for arch in self.archs)
        return "builds/" + "-".join(dict.fromkeys(f"sm{digits}" for digits in plain))

    @property
    def settings(self) -> dict[str, str]:
        """The variables that PyTorch's build reads."""
        return {
            "TORCH_CUDA_ARCH_LIST": ";".join(self.archs),
            **_SETTINGS,
            "MAX_JOBS": str(self.jobs),
        }

    @property
    def image(self) -> str:
        """Name of the image that the container build makes."""
        return f"flodl-libtorch:{self.version}-{self.variant_id.partition('/')[2]}"


def sorted_archs(text: str) -> tuple[str, ...]:
    """``"12.0;6.1"`` as ``("6.1", "12.0")``, each once.

    Raises:
        UsageError: One of them is no architecture.
    """
    tokens = [token.strip() for token in re.split(r"[;,\s]+", text) if token.strip()]
    wrong = [token for token in tokens if parse_arch(token) is None]
    if wrong or not tokens:
        raise UsageError(
            f"--archs {text!r}: {wrong[0] if wrong else 'nothing'!r} is no architecture",
            hint='give compute capabilities, such as --archs "6.1;12.0"; +PTX may follow one',
        )
    return tuple(sorted(dict.fromkeys(tokens), key=lambda token: parse_arch(token) or (0, 0)))


def check_plan(planned: BuildPlan) -> None:
    """Stop before hours of work that cannot end well.

    Raises:
        UsageError: An architecture is too old for the CUDA version, or there are no jobs.
    """
    if planned.jobs < 1:
        raise UsageError(f"--jobs {planned.jobs}: a build needs at least one")
    old = [a for a in planned.archs if (parse_arch(a) or (0, 0)) < _FIRST_ARCH_OF_CUDA_13]
    if old and version_key(planned.cuda) >= (13,):
        raise UsageError(
            f"CUDA {planned.cuda} compiles for 7.5 and newer, and {old[0]} is asked for",
            hint="add --cuda 12.8",
        )


def docker_works() -> bool:
    """Whether there is a Docker that answers."""
    try:
        return ask(["docker", "info"], limit_s=10.0).code == 0
    except LaunchError:
        return False


def missing_tools() -> list[str]:
    """Programs that a build on this machine needs and does not find, with lines to install them."""
    found = []
    for tool, (apt, dnf, brew) in _TOOLS.items():
        if shutil.which(tool) is None:
            ways = [f"apt-get install {apt}", f"dnf install {dnf}"]
            found.append(
                f"{tool} ({', '.join([*ways, *([f'brew install {brew}'] if brew else [])])})"
            )
    return found


def dockerfile(planned: BuildPlan) -> str:
    """The recipe of the container build; the clone is kept between attempts."""
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in planned.settings.items())
    base = f"nvidia/cuda:{CUDA_IMAGES[planned.cuda]}-cudnn-devel-ubuntu24.04"
    tag = f"v{planned.version}"
    return f"""\
# syntax=docker/dockerfile:1
FROM {base}
RUN apt-get update && apt-get install -y --no-install-recommends \\
    git cmake ninja-build g++ ca-certificates python3-venv python3-dev
RUN python3 -m venv /venv
ENV PATH=/venv/bin:$PATH {variables}
RUN --mount=type=cache,id=pytorch-{planned.version},target=/src \\
    if [ ! -d /src/.git ]; then git clone --depth 1 --branch {tag} {_REPOSITORY} /src; fi && \\
    cd /src && git submodule update --init --recursive --depth 1 && \\
    pip install -r requirements.txt && python tools/build_libtorch.py && \\
    mkdir -p /out && cp -a torch/lib torch/include torch/share /out/
"""


def docker_commands(planned: BuildPlan, context: Path, out: Path) -> list[list[str]]:
    """The commands that make the image, and take its result out of a container of it."""
    return [
        ["docker", "build", "--tag", planned.image, str(context)],
        ["docker", "create", "--name", CONTAINER, planned.image],
        ["docker", "cp", f"{CONTAINER}:/out/.", str(out)],
        ["docker", "rm", CONTAINER],
    ]


def native_commands(planned: BuildPlan, source: Path) -> list[list[str]]:
    """The commands that build in the folder ``source``; what is there already is used again."""
    venv = source.parent / f"{source.name}-venv"
    python = str(venv / "bin" / "python")
    tag = f"v{planned.version}"
    commands = [] if (source / ".git").is_dir() else [
        ["git", "clone", "--depth", "1", "--branch", tag, _REPOSITORY, str(source)]
    ]  # fmt: skip
    git = ["git", "-C", str(source)]
    commands.append([*git, "submodule", "update", "--init", "--recursive", "--depth", "1"])
    if not Path(python).exists():
        commands.append([sys.executable, "-m", "venv", str(venv)])
    commands.append([python, "-m", "pip", "install", "-r", str(source / "requirements.txt")])
    commands.append([python, str(source / "tools" / "build_libtorch.py")])
    return commands


def context_folder(store: Store) -> Path:
    """Where the recipe of the container build is written."""
    return store.root / BUILD_CACHE / "docker"


def source_folder(planned: BuildPlan, store: Store) -> Path:
    """Where a build on this machine keeps PyTorch's source."""
    return store.root / BUILD_CACHE / f"pytorch-v{planned.version}"


def build(planned: BuildPlan, store: Store, environ: Mapping[str, str]) -> Variant:
    """Compile, install as a variant, and return it; its output goes to the terminal.

    Raises:
        BuildError: A tool is missing, or a step failed.
    """
    with store.locked(), staged(store.root / planned.variant_id) as staging:
        if planned.docker:
            _in_docker(planned, store, staging, environ)
        else:
            _on_this_machine(planned, store, staging, environ)
        read = facts(staging)
        metadata = Metadata(
            **{
                "torch": planned.version,
                **read,
                "archs": read["archs"] or " ".join(planned.archs),
                "cuda": planned.cuda if planned.docker else _toolkit_version() or planned.cuda,
                "source": "compiled",
                "variant": planned.variant_id.partition("/")[2],
                "verified": "yes",
                "created": now(),
            }
        )
        (staging / "build-version").write_text(f"{planned.version}\n", encoding="utf-8")
        write_metadata(staging, metadata)
    return store.variant(planned.variant_id)


def _in_docker(planned: BuildPlan, store: Store, staging: Path, environ: Mapping[str, str]) -> None:
    context = context_folder(store)
    context.mkdir(parents=True, exist_ok=True)
    (context / "Dockerfile").write_text(dockerfile(planned), encoding="utf-8")
    env = {**environ, "DOCKER_BUILDKIT": "1"}
    *work, clean_up = docker_commands(planned, context, staging)
    try:
        run_steps(work, context, env)
    finally:
        ask(clean_up)  # there is nothing to remove after a failed build, and that is fine


def _on_this_machine(
    planned: BuildPlan, store: Store, staging: Path, environ: Mapping[str, str]
) -> None:
    missing = missing_tools()
    if missing:
        raise BuildError(
            f"programs that the build needs are not on PATH: {'; '.join(missing)}",
            hint="install them, or build in a container: --docker",
        )
    source = source_folder(planned, store)
    source.parent.mkdir(parents=True, exist_ok=True)
    run_steps(native_commands(planned, source), source.parent, {**environ, **planned.settings})
    for part in ("lib", "include", "share"):
        shutil.copytree(source / "torch" / part, staging / part, symlinks=True)


def run_steps(commands: Sequence[Sequence[str]], folder: Path, env: Mapping[str, str]) -> None:
    """Run commands one after the other, their output going to the terminal.

    Raises:
        BuildError: One of them failed.
    """
    for command in commands:
        code = run_child(command, directory=os.fspath(folder), env=env)
        if code == 130:
            raise KeyboardInterrupt
        if code != 0:
            raise BuildError(
                f"{shlex.join(command)} ended with {code}",
                hint="its output says why; the same command goes on from here",
            )


def _toolkit_version() -> str | None:
    """The version of the CUDA toolkit on ``PATH``."""
    try:
        told = re.search(r"release (\d+\.\d+)", ask(["nvcc", "--version"]).out)
    except LaunchError:
        return None
    return told[1] if told else None
