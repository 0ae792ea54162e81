"""Builds the command tree: merges what levels and commands lay over a manifest's entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from flodl_cli.config.discover import manifest_in
from flodl_cli.config.kinds import PRESET_KEYS, Kind, kind_of, misplaced
from flodl_cli.config.load import Document, KeyPath, load
from flodl_cli.config.model import CommandSpec, Manifest
from flodl_cli.config.presets import Blocks, blocks_of, contradiction, flags, merge, settings
from flodl_cli.config.problems import problems
from flodl_cli.config.tree import Command, Level, Missing, PathCommand, Preset, Program, RunCommand
from flodl_cli.errors import ConfigError, ConfigErrors
from flodl_cli.names import MANIFEST_FILES

_NOT_YET = {
    "inherit-from": (
        "this version of fdl cannot merge in a parent manifest",
        "copy the keys you need into this file",
    ),
    "docker": (
        "this version of fdl cannot run commands in a container",
        "remove the key to run on this host",
    ),
    "cluster": (
        "this version of fdl cannot spread a command over hosts",
        "remove the key to run on this host only",
    ),
    "schema": (
        "this version of fdl cannot check arguments against a schema",
        "remove the key: arguments then reach the entry unchecked",
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolution:
    """A command tree and what it depends on: the files read, and the files that are not there."""

    level: Level
    files: tuple[str, ...]
    absent: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Above:
    """What the levels above, and the path command that leads here, lay over a manifest."""

    directories: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[Missing, ...] = ()
    cluster: Missing | None = None
    blocks: Blocks = field(default_factory=dict)
    entry: str | None = None
    args: tuple[str, ...] = ()
    own_env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Use:
    """One way to use an entry: by its manifest's own settings, or by those of a preset."""

    entry: str
    blocks: Blocks
    env: dict[str, str]
    cluster: Missing | None
    args: tuple[str, ...] = ()
    path: KeyPath = ()


def resolve(file: str) -> Resolution:
    """Read ``file`` and every manifest below it.

    A fault in a manifest below stays with the path command that leads there.

    Raises:
        ConfigError, ConfigErrors: ``file`` itself is at fault.
    """
    files: list[str] = []
    level = _read(file, _Above(), files)
    beside = (str(Path(each).with_name(name)) for each in files for name in MANIFEST_FILES)
    return Resolution(
        level=level,
        files=tuple(files),
        absent=tuple(dict.fromkeys(each for each in beside if each not in files)),
    )


def _read(file: str, above: _Above, files: list[str]) -> Level:
    files.append(file)
    document = load(Path(file))
    try:
        manifest = Manifest.model_validate(document.data)
    except ValidationError as error:
        raise ConfigErrors(problems(document, error)) from error
    return _LevelBuilder(document, manifest, above, files).build()


class _LevelBuilder:
    """Builds one level; its faults are gathered, so that a user sees all of them at once."""

    def __init__(
        self, document: Document, manifest: Manifest, above: _Above, files: list[str]
    ) -> None:
        self._document = document
        self._manifest = manifest
        self._above = above
        self._files = files
        self._directory = str(document.file.parent)
        self._faults: list[ConfigError] = []
        self._env = {**above.env, **(manifest.env or {}), **above.own_env}
        self._blocks: Blocks = merge(blocks_of(document.data), above.blocks)
        self._entry = above.entry or manifest.entry
        self._missing = above.missing
        if manifest.inherit_from is not None:
            self._missing = (*above.missing, self._not_yet("inherit-from", ("inherit-from",)))
        own = manifest.cluster if isinstance(manifest.cluster, bool) else None
        self._cluster = self._clustered(own, ("cluster",), above.cluster)

    def build(self) -> Level:
        """The level.

        Raises:
            ConfigErrors: The manifest is at fault.
        """
        if self._above.directories:
            self._refuse_root_keys()
        program = None
        if self._entry is not None:
            program = self._program(
                _Use(entry=self._entry, blocks=self._blocks, env=self._env, cluster=self._cluster)
            )
        commands: dict[str, Command] = {}
        for name, spec in (self._manifest.commands or {}).items():
            commands[name] = self._command(name, spec or CommandSpec())
        if self._faults:
            raise ConfigErrors(sorted(self._faults, key=lambda fault: fault.line or 0))
        return Level(
            file=str(self._document.file),
            directory=self._directory,
            description=self._manifest.description or "",
            preset_label=self._manifest.arg_name,
            program=program,
            commands=commands,
        )

    def _command(self, name: str, spec: CommandSpec) -> Command:
        path: KeyPath = ("commands", name)
        kind = kind_of(spec, has_entry=self._entry is not None)
        for key, message, hint in misplaced(spec, kind):
            self._fault((*path, key), message, hint)
        cluster = self._clustered(spec.cluster, (*path, "cluster"), self._cluster)
        env = {**self._env, **(spec.env or {})}
        if kind is Kind.PATH:
            return self._path_command(name, spec, cluster)
        if kind is Kind.PRESET:
            use = _Use(
                entry=spec.entry or self._entry or "",
                blocks=merge(self._blocks, blocks_of(self._raw(name))),
                env=env,
                cluster=cluster,
                args=tuple(spec.args or ()),
                path=path,
            )
            return Preset(
                name=name,
                description=spec.description or "",
                place=self._document.place(path),
                program=self._program(use),
            )
        missing = (*self._missing, *([cluster] if cluster else []))
        if spec.docker is not None:
            missing = (*missing, self._not_yet("docker", (*path, "docker")))
        return RunCommand(
            name=name,
            description=spec.description or "",
            place=self._document.place(path),
            directory=self._directory,
            run=spec.run or "",
            append=spec.append,
            env=env,
            missing=missing,
        )

    def _path_command(self, name: str, spec: CommandSpec, cluster: Missing | None) -> PathCommand:
        above = _Above(
            directories=(*self._above.directories, str(Path(self._directory).resolve())),
            env=self._env,
            missing=self._missing,
            cluster=cluster,
            blocks=blocks_of(self._raw(name)),
            entry=spec.entry,
            args=tuple(spec.args or ()),
            own_env=spec.env or {},
        )
        level: Level | None = None
        faults: tuple[ConfigError, ...] = ()
        try:
            level = _read(self._child(name, spec, above.directories), above, self._files)
        except ConfigErrors as error:
            faults = error.errors
        except ConfigError as error:
            faults = (error,)
        return PathCommand(
            name=name,
            description=spec.description or (level.description if level else ""),
            place=self._document.place(("commands", name)),
            level=level,
            problems=faults,
        )

    def _child(self, name: str, spec: CommandSpec, open_directories: tuple[str, ...]) -> str:
        """The manifest a path command leads to."""
        directory = (self._document.file.parent / (spec.path or name)).resolve()
        path: KeyPath = ("commands", name, *(["path"] if spec.path else []))
        if str(directory) in open_directories:
            raise self._document.error(
                path, f"leads back to {directory}, which leads here", hint="break the circle"
            )
        file = manifest_in(str(directory))
        if file is not None:
            return file
        given = [key for key in PRESET_KEYS if getattr(spec, key) is not None]
        if spec.path is None and given:
            raise self._document.error(
                path,
                f"{given[0]} makes this a preset, but the manifest has no entry to run, "
                f"and there is no ./{name}/{MANIFEST_FILES[0]} either",
                hint=f"give this manifest an entry, or make ./{name}/{MANIFEST_FILES[0]}",
            )
        raise self._document.error(
            path,
            f"there is no {' or '.join(MANIFEST_FILES)} in {directory}",
            hint="correct path, or give the command a run line",
        )

    def _program(self, use: _Use) -> Program:
        conflict = contradiction(use.blocks)
        if conflict is not None:
            self._fault((*use.path, "ddp"), conflict, "set the other one to null")
        missing = [*self._missing, *([use.cluster] if use.cluster else []), *self._entry_missing()]
        return Program(
            entry=use.entry,
            directory=self._directory,
            flags=flags(use.blocks),
            args=(*self._above.args, *use.args),
            env=use.env,
            settings=settings(use.blocks),
            missing=tuple(missing),
        )

    def _entry_missing(self) -> list[Missing]:
        manifest = self._manifest
        keys: list[tuple[str, str]] = []
        if manifest.docker is not None:
            keys.append(("docker", "docker"))
        if manifest.entry_schema is not None:
            keys.append(("schema", "schema"))
        if manifest.schema_from is not None:
            keys.append(("schema", "schema-from"))
        if manifest.probe == "always":
            keys.append(("schema", "probe"))
        if manifest.compile:
            keys.append(("schema", "compile"))
        return [self._not_yet(feature, (key,)) for feature, key in keys]

    def _clustered(
        self, value: bool | None, path: KeyPath, outer: Missing | None
    ) -> Missing | None:
        if value is None:
            return outer
        return self._not_yet("cluster", path) if value else None

    def _refuse_root_keys(self) -> None:
        keys = [key for key in ("join", "publish") if getattr(self._manifest, key) is not None]
        if isinstance(self._manifest.cluster, dict):
            keys.append("cluster")
        for key in keys:
            self._fault((key,), "belongs to the manifest at the project's root", "move it there")

    def _raw(self, name: str) -> Mapping[str, object]:
        """The command as it stands in the file, where ``null`` differs from absent."""
        return self._document.data["commands"][name] or {}

    def _not_yet(self, feature: str, path: KeyPath) -> Missing:
        message, hint = _NOT_YET[feature]
        return Missing(place=self._document.place(path), message=message, hint=hint)

    def _fault(self, path: KeyPath, message: str, hint: str) -> None:
        self._faults.append(self._document.error(path, message, hint=hint))
