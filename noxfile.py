"""Every check of this repository, by name: ``nox -l`` lists them, ``.ci/run`` runs the gate.

Sessions run in the synced ``.venv`` (start them through ``./fdl``, ``uv run nox`` or with the
environment active); only ``wheels`` makes environments of its own.
"""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PACKAGES = ("flodl-sys", "flodl", "flodl-cli", "flodl-hf")
SOURCES = [*(f"packages/{name}/src" for name in PACKAGES), "ddp-bench/src"]

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "imports", "tests"]
nox.options.error_on_external_run = False


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and formatting of Python, and the shell scripts."""
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    if shutil.which("shellcheck") is None:
        session.error("shellcheck is not installed; apt-get install shellcheck")
    session.run("shellcheck", "fdl", ".ci/run", ".ci/gpu")


@nox.session
def types(session: nox.Session) -> None:
    """Check types strictly in every package, and that no file was left out."""
    expected = sum(
        path.suffix in {".py", ".pyi"} for source in SOURCES for path in (ROOT / source).rglob("*")
    )
    output = session.run("mypy", *SOURCES, silent=True, success_codes=[0, 1])
    session.log(output)
    summary = re.search(r"Success: no issues found in (\d+) source files", str(output))
    if summary is None:
        session.error("types are wrong, see above")
    if int(summary[1]) != expected:
        session.error(f"mypy read {summary[1]} files of {expected}: its sources leave some out")


@nox.session
def imports(session: nox.Session) -> None:
    """Check who imports whom against the layers of docs/design/architecture.md."""
    session.run("lint-imports", "--no-logo")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the default tests; arguments after ``--`` go to pytest."""
    session.run("pytest", *session.posargs, env=_single_threaded())


@nox.session
def slow_tests(session: nox.Session) -> None:
    """Run the tests marked slow."""
    session.run(
        "pytest", "-m", "slow", *session.posargs, env=_single_threaded(), success_codes=[0, 5]
    )


@nox.session
def browser_tests(session: nox.Session) -> None:
    """Run the tests that drive a real browser: Debian's chromium, through Playwright."""
    if shutil.which("chromium") is None:
        session.error("chromium is not installed; apt-get install chromium")
    session.run("pytest", "-m", "browser", *session.posargs, env=_single_threaded())


@nox.session
def cuda_tests(session: nox.Session) -> None:
    """Run the tests that need a CUDA device, or skip loudly where there is none."""
    _require_gpus(session, 1)
    session.run("pytest", "-m", "cuda", *session.posargs, success_codes=[0, 5])


@nox.session
def nccl_tests(session: nox.Session) -> None:
    """Run the tests that need two CUDA devices, or skip loudly where there are none."""
    _require_gpus(session, 2)
    session.run("pytest", "-m", "nccl", *session.posargs, success_codes=[0, 5])


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation; a broken link or reference fails."""
    session.run("mkdocs", "build", "--strict", "--site-dir", session.create_tmp())


@nox.session
def bench(session: nox.Session) -> None:
    """Run the benchmarks that have bars, and fail where one is not met."""
    session.run("python", "-m", "ddp_bench.overhead.kernels", "--gate")
    session.run("python", "-m", "ddp_bench.speed.graph_overhead", "--bar", "1.02")
    session.run("python", "-m", "ddp_bench.loading", "--gate")
    session.run("python", "-m", "ddp_bench.scaling", "--ci", "--gate")
    session.run("python", "-m", "ddp_bench.scaling", "curves", "--gate")
    session.run("python", "-m", "ddp_bench.scaling", "startup", "--gate")


@nox.session
def faults(session: nox.Session) -> None:
    """Seed one fault for each gate in a copy of the tree, and see that the gate fails on it."""
    session.run("python", ".ci/seeded_faults.py", *session.posargs)


@nox.session
def wheels(session: nox.Session) -> None:
    """Build each package, install it alone into a clean environment, and use it there.

    Arguments after ``--`` choose packages; all of them otherwise.
    """
    chosen = [name for name in PACKAGES if not session.posargs or name in session.posargs]
    needed = PACKAGES[: 1 + max(PACKAGES.index(name) for name in chosen)]
    dist = Path(session.create_tmp()).resolve() / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    for name in needed:
        session.run("uv", "build", "--package", name, "-o", str(dist), env=_native("1"))
    session.run(
        "uv", "build", "--package", "flodl-sys", "--wheel", "-o", str(dist), env=_native("0")
    )
    built = sorted(path.name for path in dist.glob("flodl*"))
    session.log("built:\n  " + "\n  ".join(built))
    kinds = [name for name in built if name.startswith("flodl_sys") and name.endswith(".whl")]
    if len(kinds) != 2 or not any(name.endswith("py3-none-any.whl") for name in kinds):
        session.error(f"flodl-sys needs one platform wheel and one py3-none-any: {kinds}")
    for name in chosen:
        _use_alone(session, name, dist)
    _check_pure_choice(session, dist)


@nox.session
def profiles(session: nox.Session) -> None:
    """Install flodl-hf with each of its extras into a clean environment, and use it there."""
    work = Path(session.create_tmp()).resolve()
    dist = work / "dist"
    shutil.rmtree(work, ignore_errors=True)
    for name in ("flodl-sys", "flodl", "flodl-hf"):
        session.run("uv", "build", "--package", name, "--wheel", "-o", str(dist), env=_native("1"))
    brings = {
        "hub": ({"huggingface-hub"}, {"tokenizers", "transformers"}),
        "full": ({"huggingface-hub", "tokenizers"}, {"transformers"}),
        "verify": ({"huggingface-hub", "tokenizers", "transformers", "sentencepiece"}, set()),
    }
    for extra, (wanted, unwanted) in brings.items():
        environment = work / extra
        installed = _installed(session, environment, dist, f"flodl-hf[{extra}]")
        if wanted - installed or unwanted & installed:
            session.error(f"flodl-hf[{extra}] brings {sorted(installed)}")
        check = ROOT / "packages" / "flodl-hf" / "tests" / "profiles.py"
        with session.chdir(work):
            python = str(environment / "bin" / "python")
            session.run(python, "-I", str(check), extra, external=True)


@nox.session
def projects(session: nox.Session) -> None:
    """Make a project as a user does, from this tree's wheels, and run its commands and tests."""
    work = Path(session.create_tmp()).resolve()
    dist = work / "dist"
    shutil.rmtree(work, ignore_errors=True)
    for name in PACKAGES:
        session.run("uv", "build", "--package", name, "--wheel", "-o", str(dist), env=_native("1"))
    session.run("uv", "cache", "clean", "--quiet", *PACKAGES)  # wheels of an earlier tree
    home = {"HOME": str(work / "home"), "VIRTUAL_ENV": "", "UV_FIND_LINKS": str(dist)}
    home["UV_CACHE_DIR"] = str(session.run("uv", "cache", "dir", silent=True)).strip()
    home["UV_CONSTRAINT"] = str(_constraints(work))
    (work / "home").mkdir()
    fdl = str(ROOT / "fdl")
    with session.chdir(work):
        session.run(fdl, "init", "my-project", "--native", "--no-git", env=home)
    with session.chdir(work / "my-project"):
        session.run("uv", "sync", "--quiet", env=home)
        for words in ("test", "lint", "run -- --epochs 2", "config check", "add hf --playground"):
            session.run("./fdl", *words.split(), env=home, external=True)
        session.run("./fdl", "flodl-hf", "test", env=home, external=True)
        session.run("./fdl", "api-ref", env=home, external=True, silent=True)


@nox.session
def pins(session: nox.Session) -> None:
    """Resolve everything afresh and write the exact versions into the root pyproject.toml."""
    _write_pins("constraint-dependencies", [])
    _write_pins("build-constraint-dependencies", [])
    plain = ("--no-header", "--no-annotate", "--no-hashes")
    everything = ("--all-packages", "--all-groups", "--all-extras", "--no-emit-workspace")
    session.run("uv", "lock", "--upgrade")
    exported = session.run("uv", "export", "--frozen", *everything, *plain, silent=True)
    tools = Path(session.create_tmp()) / "build-tools.in"
    tools.write_text("\n".join(_build_tools()))
    universal = ("--universal", "--python-version", "3.11")
    compiled = session.run("uv", "pip", "compile", str(tools), *universal, *plain[:2], silent=True)
    _write_pins("constraint-dependencies", _requirements(str(exported)))
    _write_pins("build-constraint-dependencies", _requirements(str(compiled)))
    session.run("uv", "lock")


def _single_threaded() -> dict[str, str]:
    """Two OpenMP pools on two cores wait for each other: one thread per test process."""
    return {"OMP_NUM_THREADS": "1"}


def _native(value: str) -> dict[str, str]:
    return {"FLODL_SYS_NATIVE": value}


def _require_gpus(session: nox.Session, count: int) -> None:
    import torch

    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if found < count:
        session.skip(f"needs {count} CUDA devices, this machine has {found}: NOTHING WAS TESTED")


def _use_alone(session: nox.Session, name: str, dist: Path) -> None:
    """Install one wheel and what it declares, run its check, and say what got installed."""
    environment = dist.parent / f"alone-{name}"
    _check_installed(session, name, _installed(session, environment, dist, name))
    python = str(environment / "bin" / "python")
    check = ROOT / "packages" / name / "tests" / "alone.py"
    work = dist.parent / f"work-{name}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    with session.chdir(work):
        session.run(python, "-W", "error", "-I", str(check), external=True)


def _installed(session: nox.Session, environment: Path, dist: Path, requirement: str) -> set[str]:
    """Install a requirement into a clean environment, and return what it brought."""
    shutil.rmtree(environment, ignore_errors=True)
    session.run("uv", "venv", "--quiet", "--python", sys.executable, str(environment))
    python = str(environment / "bin" / "python")
    install = ("uv", "pip", "install", "--quiet", "--python", python, "--find-links", str(dist))
    session.run(*install, "--constraint", str(_constraints(dist.parent)), requirement)
    listed = session.run("uv", "pip", "list", "--python", python, "--format", "freeze", silent=True)
    names = {line.partition("==")[0] for line in str(listed).splitlines() if "==" in line}
    session.log(f"{requirement} installs {len(names)} distributions: {', '.join(sorted(names))}")
    return names


def _check_installed(session: nox.Session, name: str, installed: set[str]) -> None:
    if name == "flodl-sys" and installed != {"flodl-sys"}:
        session.error(f"flodl-sys must bring nothing: {sorted(installed)}")
    if name == "flodl-cli" and installed & {"torch", "numpy", "flodl", "cmake", "ninja"}:
        session.error(f"flodl-cli must bring no torch and no compiler: {sorted(installed)}")
    if name == "flodl-hf" and installed & {"huggingface-hub", "tokenizers", "transformers"}:
        session.error(f"flodl-hf without an extra must bring no hub: {sorted(installed)}")


def _check_pure_choice(session: nox.Session, dist: Path) -> None:
    """See that an installer takes the pure wheel where the platform wheel does not fit."""
    target = dist.parent / "other-platform"
    shutil.rmtree(target, ignore_errors=True)
    offline = ("--no-index", "--find-links", str(dist), "--only-binary", ":all:")
    platform = ("--python-platform", "aarch64-apple-darwin", "--target", str(target))
    session.run("uv", "pip", "install", "--quiet", *offline, *platform, "flodl-sys")
    compiled = [path.name for path in target.rglob("_core*") if path.suffix == ".so"]
    if compiled:
        session.error(f"another platform got a compiled module: {compiled}")


def _constraints(folder: Path) -> Path:
    """Write the workspace's exact pins where an installer can read them."""
    root = tomllib.loads((ROOT / "pyproject.toml").read_text())
    path = folder / "constraints.txt"
    path.write_text("\n".join(root["tool"]["uv"]["constraint-dependencies"]))
    return path


def _requirements(output: str) -> list[str]:
    """Return the ``name==version ; marker`` lines of a resolver's output."""
    lines = (line.strip() for line in output.splitlines())
    return sorted(line for line in lines if re.match(r"[A-Za-z0-9._-]+==", line))


def _build_tools() -> list[str]:
    """Return what the packages' builds require, the native build's tools included."""
    tools = {"cmake>=3.26", "ninja"}
    for manifest in (*ROOT.glob("packages/*/pyproject.toml"), ROOT / "ddp-bench/pyproject.toml"):
        tools.update(tomllib.loads(manifest.read_text())["build-system"]["requires"])
    return sorted(tools)


def _write_pins(key: str, pins: list[str]) -> None:
    """Replace one list of ``[tool.uv]`` in the root pyproject.toml."""
    path = ROOT / "pyproject.toml"
    body = "".join(f'    "{pin}",\n' for pin in pins)
    replacement = f"{key} = [\n{body}]" if pins else f"{key} = []"
    text, count = re.subn(
        rf"^{re.escape(key)} = \[(?:\]|\n.*?\n\])$",
        lambda _: replacement,
        path.read_text(),
        flags=re.M | re.S,
    )
    if count != 1:
        raise LookupError(f"{path}: expected one {key} list, found {count}")
    path.write_text(text)
