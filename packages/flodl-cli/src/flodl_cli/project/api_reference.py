"""What flodl offers, read out of its source: names, signatures, first lines of their docstrings.

Nothing of flodl is imported, nor torch.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platformdirs import user_cache_path

from flodl_cli.errors import FdlError

if TYPE_CHECKING:
    import griffe

_SHOWN = ("flodl", "flodl.nn", "flodl.data", "flodl.optim", "flodl.metrics", "flodl.records")
_FORMAT = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """A function or method: its name, its signature, the first line of its docstring."""

    name: str
    signature: str
    doc: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One public class or function.

    ``builder`` holds the methods that return the object itself, so that calls can be chained;
    ``constructors`` those of the class that make one.
    """

    name: str
    category: str
    file: str
    doc: str
    signature: str
    bases: tuple[str, ...]
    constructors: tuple[Signature, ...]
    methods: tuple[Signature, ...]
    builder: tuple[Signature, ...]
    examples: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where flodl was found: the folder that holds the package, and its version."""

    folder: Path
    version: str
    is_installed: bool


def find_source(path: Path | None, directory: Path, environ: Mapping[str, str]) -> Source:
    """The flodl at ``path``, of the checkout around ``directory``, or of its environment.

    Raises:
        FdlError: It is at none of them.
    """
    if path is not None:
        for folder in (path, path / "src", path / "packages" / "flodl" / "src", path.parent):
            if (folder / "flodl" / "__init__.py").is_file():
                return _source(folder)
        raise FdlError(f"--path {path}: no flodl package there", exit_code=2)
    for folder in (directory, *directory.parents):
        checkout = folder / "packages" / "flodl" / "src"
        if (checkout / "flodl" / "__init__.py").is_file():
            return _source(checkout)
        for found in sorted((folder / ".venv").glob("lib/python*/site-packages")):
            if (found / "flodl" / "__init__.py").is_file():
                return _source(found)
    active = environ.get("VIRTUAL_ENV")
    for found in sorted(Path(active).glob("lib/python*/site-packages")) if active else ():
        if (found / "flodl" / "__init__.py").is_file():
            return _source(found)
    raise FdlError(
        f"no flodl in {directory}, its .venv, or the active environment",
        hint="go to a project that has it, or give --path",
    )


def reference(source: Source) -> list[Entry]:
    """Every public class and function, by area and name; kept for an installed version.

    Raises:
        FdlError: griffe is not installed, or the source cannot be read.
    """
    cache = _cache_file(source) if source.is_installed else None
    if cache is not None:
        kept = _read_cache(cache)
        if kept is not None:
            return kept
    entries = sorted(_entries(source), key=lambda each: (each.category, each.name))
    if cache is not None:
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text(json.dumps([asdict(each) for each in entries]), encoding="utf-8")
    return entries


def _entries(source: Source) -> Iterator[Entry]:
    try:
        import griffe
    except ModuleNotFoundError as error:
        raise FdlError(
            "api-ref needs griffe, which is not installed",
            hint='install "flodl-cli[api-ref]"',
        ) from error
    try:
        package = griffe.load("flodl", search_paths=[source.folder], allow_inspection=False,
                              resolve_aliases=True, resolve_external=False)  # fmt: skip
    except (griffe.GriffeError, ImportError, SyntaxError) as error:
        raise FdlError(f"flodl in {source.folder} cannot be read: {error}") from error
    seen: set[str] = set()
    reached: list[griffe.Object] = []
    for module_path in _SHOWN:
        module = package if module_path == "flodl" else package[module_path.partition(".")[2]]
        for name in module.exports or ():
            member = module.members.get(str(name))
            target = None if member is None else _target(member)
            if target is None or target.canonical_path in seen:
                continue
            seen.add(target.canonical_path)
            if target.is_class or target.is_function:
                yield _entry(str(name), target, source)
                reached += _returned(target, package)
    for target in reached:
        if target.canonical_path not in seen:
            seen.add(target.canonical_path)
            yield _entry(target.name, target, source)


def _returned(target: Any, package: Any) -> Iterator[Any]:
    """Classes of flodl that methods of a public class return: a user meets them as well."""
    for member in target.members.values() if target.is_class else ():
        if member.is_alias or not member.is_function or member.name.startswith("_"):
            continue
        path = getattr(member.returns, "canonical_path", "")
        if not path.startswith("flodl."):
            continue
        try:
            found = _target(package[path.removeprefix("flodl.")])
        except KeyError:
            continue
        if found is not None and found.is_class and not found.name.startswith("_"):
            yield found


def _target(member: griffe.Object | griffe.Alias) -> griffe.Object | None:
    """The class or function behind a name; ``None`` for one of another package."""
    import griffe

    if not member.is_alias:
        return member  # type: ignore[return-value]  # is_alias told that it is an Object
    try:
        target = member.final_target  # type: ignore[union-attr]
    except (griffe.AliasResolutionError, griffe.CyclicAliasError):
        return None
    return target if target.canonical_path.startswith("flodl.") else None


def _entry(name: str, target: Any, source: Source) -> Entry:
    methods = list(_methods(target)) if target.is_class else []
    returned = ("-> Self", f"-> {name}", f"-> '{name}'")
    chained = [each for each in methods if each.signature.endswith(returned)]
    made = [each for each in chained if "classmethod" in _labels(target, each.name)]
    signature = _signature(target.parameters, "") if target.is_class else _of_function(target)
    return Entry(
        name=name,
        category=target.canonical_path.split(".")[1],
        file=_relative(target, source),
        doc=_first_line(target),
        signature=signature,
        bases=tuple(str(base) for base in target.bases) if target.is_class else (),
        constructors=tuple(made),
        methods=tuple(each for each in methods if each not in chained),
        builder=tuple(each for each in chained if each not in made),
        examples=tuple(_examples(target)),
    )


def _functions(target: Any) -> dict[str, Any]:
    """Public methods by name, those of flodl's own base classes included."""
    own = {name: member for name, member in target.members.items() if not member.is_alias}
    inherited = {name: each.final_target for name, each in target.inherited_members.items()}
    return {
        name: member
        for name, member in {**inherited, **own}.items()
        if not name.startswith("_") and member.is_function
    }


def _methods(target: Any) -> Iterator[Signature]:
    for name, member in _functions(target).items():
        yield Signature(name=name, signature=_of_function(member), doc=_first_line(member))


def _labels(target: Any, name: str) -> set[str]:
    return set(_functions(target)[name].labels)


def _of_function(function: Any) -> str:
    returns = f" -> {function.returns}" if function.returns is not None else ""
    return _signature(function.parameters, returns)


def _signature(parameters: Any, returns: str) -> str:
    """Parameters as a person would write them, ``self`` and ``cls`` left out."""
    words: list[str] = []
    star_due = True
    for each in parameters:
        if each.name in ("self", "cls") or each.name.startswith("_"):
            continue
        kind = each.kind.value if each.kind is not None else ""
        if kind == "keyword-only" and star_due:
            words.append("*")
            star_due = False
        prefix = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        star_due = star_due and prefix != "*"
        word = prefix + each.name
        word += f": {each.annotation}" if each.annotation is not None else ""
        if each.default is not None and not prefix:
            word += f" = {each.default}" if each.annotation is not None else f"={each.default}"
        words.append(word)
    return f"({', '.join(words)}){returns}"


def _first_line(target: Any) -> str:
    return target.docstring.value.splitlines()[0] if target.docstring else ""


def _examples(target: Any) -> Iterator[str]:
    if target.docstring:
        for match in re.finditer(r"(?:^[ ]*>>> .*\n?(?:^[ ]*(?:\.\.\.|>>>) .*\n?)*)",
                                 target.docstring.value, re.MULTILINE):  # fmt: skip
            yield match[0].strip("\n")


def _relative(target: Any, source: Source) -> str:
    file = Path(target.filepath)
    return str(file.relative_to(source.folder)) if file.is_relative_to(source.folder) else str(file)


def _source(folder: Path) -> Source:
    infos = sorted(folder.glob("flodl-*.dist-info"))
    if infos:
        version = infos[0].name.removeprefix("flodl-").removesuffix(".dist-info")
        return Source(folder=folder, version=version, is_installed=True)
    project = folder.parent / "pyproject.toml"
    text = project.read_text(encoding="utf-8") if project.is_file() else ""
    match = re.search(r'^version = "([^"]+)"', text, re.MULTILINE)
    return Source(folder=folder, version=match[1] if match else "unknown", is_installed=False)


def _cache_file(source: Source) -> Path:
    digest = hashlib.blake2b(str(source.folder).encode(), digest_size=6).hexdigest()
    name = f"api-ref-{_FORMAT}-{source.version}-{digest}.json"
    return Path(user_cache_path("flodl")) / name


def _read_cache(file: Path) -> list[Entry] | None:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        return [_restored(each) for each in data]
    except (OSError, ValueError, TypeError, KeyError):  # a broken cache is made anew
        return None


def _restored(data: dict[str, Any]) -> Entry:
    for key in ("constructors", "methods", "builder"):
        data[key] = tuple(Signature(**each) for each in data[key])
    return Entry(**{**data, "bases": tuple(data["bases"]), "examples": tuple(data["examples"])})
