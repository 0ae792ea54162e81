"""Builds the command tree: merges what levels and commands lay over a manifest's entry."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flodl_cli.args.schema import schema_from_json
from flodl_cli.config.discover import manifest_in, overlay_files
from flodl_cli.config.kinds import PRESET_KEYS, Kind, kind_of, misplaced
from flodl_cli.config.layers import Layers, load_layers, validated
from flodl_cli.config.load import KeyPath
from flodl_cli.config.model import CommandSpec, Manifest
from flodl_cli.config.presets import Blocks, blocks_of, contradiction, flags, merge, settings
from flodl_cli.config.tree import Command, Level, Missing, PathCommand, Preset, Program, RunCommand
from flodl_cli.errors import ConfigError, ConfigErrors, SchemaError
from flodl_cli.names import MANIFEST_FILES

_NOT_YET = {
    "cluster": (
        "this version of fdl cannot spread a command over hosts",
        "remove the key to run on this host only",
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


def resolve(
    file: str, overlay: str | None = None, settings_on_top: Blocks | None = None
) -> Resolution:
    """Read ``file`` and every manifest below it, each with its overlay of that name if it has one.

    A fault in a manifest below stays with the path command that leads there. ``settings_on_top``
    are laid over what every entry is run with.

    Raises:
        ConfigError, ConfigErrors: ``file`` itself is at fault.
    """
    reader = _Reader(overlay, settings_on_top or {})
    level = reader.read(file, _Above())
    beside = {
        path
        for each in reader.manifests
        for path in (
            *(str(Path(each).with_name(name)) for name in MANIFEST_FILES),
            *(overlay_files(each, overlay) if overlay is not None else ()),
        )
    }
    return Resolution(
        level=level,
        files=tuple(reader.files),
        absent=tuple(sorted(beside - set(reader.files))),
    )


class _Reader:
    """Reads one manifest after the other, and remembers the files."""

    def __init__(self, overlay: str | None, settings_on_top: Blocks) -> None:
        self._overlay = overlay
        self.settings_on_top = settings_on_top
        self.manifests: list[str] = []
        self.files: list[str] = []

    def read(self, file: str, above: _Above) -> Level:
        """The level that ``file`` and its other layers describe."""
        self.manifests.append(file)
        self.files.append(file)
        layers = load_layers(file, self._overlay)
        self.files += [each for each in layers.files if each not in self.files]
        manifest = validated(layers.document)
        return _LevelBuilder(layers, manifest, above, self).build()


class _LevelBuilder:
    """Builds one level; its faults are gathered, so that a user sees all of them at once."""

    def __init__(self, layers: Layers, manifest: Manifest, above: _Above, reader: _Reader) -> None:
        self._document = layers.document
        self._layer_files = layers.files
        self._manifest = manifest
        self._above = above
        self._reader = reader
        self._directory = str(layers.document.file.parent)
        self._faults: list[ConfigError] = []
        self._plain_schema: dict[str, Any] | None = None
        self._env = {**above.env, **(manifest.env or {}), **above.own_env}
        self._blocks: Blocks = merge(blocks_of(layers.document.data), above.blocks)
        self._entry = above.entry or manifest.entry
        self._missing = above.missing
        own = manifest.cluster if isinstance(manifest.cluster, bool) else None
        self._cluster = self._clustered(own, ("cluster",), above.cluster)

    def build(self) -> Level:
        """The level.

        Raises:
            ConfigErrors: The manifest is at fault.
        """
        if self._above.directories:
            self._refuse_root_keys()
        self._plain_schema = self._schema()
        program = None
        if self._entry is not None:
            self._check_entry(("entry",), self._entry)
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
            layers=self._layer_files,
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
        if spec.entry is not None:
            self._check_entry((*path, "entry"), spec.entry)
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
        return RunCommand(
            name=name,
            description=spec.description or "",
            place=self._document.place(path),
            directory=self._directory,
            run=spec.run or "",
            append=spec.append,
            docker=spec.docker,
            env=env,
            missing=missing,
        )

    def _check_entry(self, path: KeyPath, entry: str) -> None:
        try:
            words = shlex.split(entry)
        except ValueError as error:
            self._fault(path, f"{entry!r} cannot be split into words: {error}", "close its quotes")
        else:
            if not words:
                self._fault(path, "names no program", "write the program and its arguments")

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
            level = self._reader.read(self._child(name, spec, above.directories), above)
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
        if directory.is_dir() and not os.access(directory, os.R_OK | os.X_OK):
            raise self._document.error(
                path, f"{directory} cannot be read", hint="check its permissions"
            )
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
        blocks = merge(use.blocks, self._reader.settings_on_top)
        conflict = contradiction(blocks)
        if conflict is not None and not self._is_said(conflict, use):
            self._fault((*use.path, "ddp"), conflict, "set the other one to null")
        missing = [*self._missing, *([use.cluster] if use.cluster else [])]
        return Program(
            entry=use.entry,
            docker=self._manifest.docker,
            layers=self._layer_files,
            schema=self._plain_schema,
            schema_from=self._manifest.schema_from,
            probe="always" if self._manifest.compile else self._manifest.probe or "auto",
            directory=self._directory,
            flags=flags(blocks),
            args=(*self._above.args, *use.args),
            env=use.env,
            settings=settings(blocks),
            missing=tuple(missing),
        )

    def _is_said(self, conflict: str, use: _Use) -> bool:
        """Whether a preset only repeats what is wrong with the settings it stands on."""
        standing = merge(self._blocks, self._reader.settings_on_top)
        return bool(use.path) and contradiction(standing) == conflict

    def _schema(self) -> dict[str, Any] | None:
        """The schema in the manifest, if it is one."""
        data = self._manifest.entry_schema
        if data is not None:
            try:
                schema_from_json(data)
            except SchemaError as error:
                self._fault(("schema",), error.message, error.hint or "correct the schema")
                return None
        return data

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
