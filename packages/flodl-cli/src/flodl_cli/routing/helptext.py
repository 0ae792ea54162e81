"""Renders help from the command tree; standard library only, so that help is quick."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from flodl_cli.args.schema import Option, Positional
from flodl_cli.config.discover import overlay_names
from flodl_cli.config.project import problems_below
from flodl_cli.config.tree import Command, Level, Missing, PathCommand, Preset, Program, RunCommand
from flodl_cli.context.flags import GLOBAL_FLAGS
from flodl_cli.errors import ConfigErrors, FdlError
from flodl_cli.names import BUILTIN_COMMANDS, MANIFEST_FILES
from flodl_cli.project.schema import known_schema
from flodl_cli.routing.walk import ShowHelp
from flodl_cli.runner import entry, script
from flodl_cli.terminal import Terminal, columns, describe, shown_path, wrap

_ABOUT = "fdl: the commands of a project, from its fdl.yml"
_FOOTER = (
    "`fdl COMMAND --help` says more about one command. "
    "What stands after `--` goes to the command unchanged."
)


def root_help(
    root: Level | None, problem: FdlError | None, overlay: str | None, terminal: Terminal
) -> str:
    """The help of fdl itself; a manifest's problem is part of it, never in its way."""
    page = _Page(terminal)
    page.text((root.description if root else "") or _ABOUT)
    page.usage("fdl [OPTIONS] COMMAND [ARGUMENTS]")
    page.section("Options", GLOBAL_FLAGS)
    page.section("Built-in commands", list(BUILTIN_COMMANDS.items()))
    if root is not None:
        page.section(f"Commands of {shown_path(root.file)}", _commands(root))
        environments = overlay_names(root.file)
        page.section(
            "Environments",
            [(f"@{name}", "active" if name == overlay else "") for name in environments],
        )
    elif problem is None:
        page.text(
            f"No {MANIFEST_FILES[0]} here or in a directory above: inside a project, "
            "its commands are listed here too. Without one, fdl manages libtorch: "
            "`fdl libtorch download`, then `fdl libtorch env`."
        )
    problems: list[FdlError] = [problem] if problem else []
    if root is not None:
        problems += problems_below(root)
    page.problems(problems)
    page.text(_FOOTER)
    return page.render()


def command_help(shown: ShowHelp, terminal: Terminal) -> str:
    """The help of one command, or of a manifest below the root."""
    page = _Page(terminal)
    name = " ".join(("fdl", *shown.trail))
    match shown.target:
        case RunCommand() as command:
            _run_help(page, name, command)
        case Preset() as preset:
            _preset_help(page, name, preset)
        case Level() as level:
            _level_help(page, name, level)
    return page.render()


def _run_help(page: _Page, name: str, command: RunCommand) -> None:
    page.title(name, command.description)
    page.usage(f"{name} [-- ARGUMENTS [-- MORE]]")
    slots = script.compose(command, ("ARGUMENTS", "--", "MORE"))
    if "--" not in shlex.split(script.compose(command, ())):
        slots = slots.replace(" -- MORE", " [-- MORE]")
    else:
        slots = slots.replace(" MORE", " [MORE]")
    page.lines("Runs", [slots.replace(" ARGUMENTS", " [ARGUMENTS]")])
    page.lines("In", [command.directory])
    page.docker(command.docker)
    page.environment(command.env)
    page.missing(command.missing)


def _preset_help(page: _Page, name: str, preset: Preset) -> None:
    page.title(name, preset.description)
    page.usage(f"{name} [ARGUMENTS]")
    page.section("Effective config", list(preset.program.settings.items()))
    page.lines("Effective command", [shlex.join(entry.compose(preset.program, ()))])
    page.lines("In", [preset.program.directory])
    page.docker(preset.program.docker)
    page.environment(preset.program.env)
    page.missing(preset.program.missing)
    page.text(f"ARGUMENTS are passed on: `{name} -- --help` shows the help of the program itself.")


def _level_help(page: _Page, name: str, level: Level) -> None:
    presets = [each for each in level.commands.values() if isinstance(each, Preset)]
    others = [each for each in level.commands.values() if not isinstance(each, Preset)]
    slots = [f"<{level.preset_label}>"] if presets else []
    slots += ["COMMAND"] if others else []
    after = f" [{' | '.join(slots)}]" if slots else ""
    page.title(name, level.description)
    page.usage(f"{name}{after}{' [ARGUMENTS]' if level.program else ''}")
    page.section(f"<{level.preset_label}>", [_row(each) for each in presets])
    page.section("Commands", [_row(each) for each in others])
    if level.program is None:
        page.text(f"`{name} COMMAND --help` says more about one command.")
        return
    _entry_help(page, name, level.program)


def _entry_help(page: _Page, name: str, program: Program) -> None:
    service = f" [docker: {program.docker}]" if program.docker else ""
    _schema_help(page, name, program)
    page.lines("Entry", [program.entry + service])
    page.lines("In", [program.directory])
    page.section("Defaults", list(program.settings.items()))
    page.environment(program.env)
    page.missing(program.missing)
    page.text(
        f"All other words go to the entry: `{name} -- --help` shows the help of the program itself."
    )


def _schema_help(page: _Page, name: str, program: Program) -> None:
    known = known_schema(program)
    if known.schema is None:
        return
    page.section("Arguments", [(each.name, _said(each)) for each in known.schema.args])
    page.section("Commands of the program", [
        (each, nested.description) for each, nested in known.schema.commands.items()
    ])  # fmt: skip
    page.section("Options", [(_spelled(each), _said(each)) for each in known.schema.options])
    if known.status == "stale":
        page.text(f"The schema is stale: `fdl schema refresh {name.removeprefix('fdl ')}`.")


def _spelled(option: Option) -> str:
    letter = f"-{option.short}, " if option.short else ""
    return f"{letter}--{option.name}" + ("" if option.type == "bool" else " <VALUE>")


def _said(entry: Option | Positional) -> str:
    parts = [entry.description]
    if entry.default not in (None, False, "", [], ()):
        parts.append(f"[default: {entry.default}]")
    if entry.choices:
        parts.append(f"[possible: {', '.join(str(each) for each in entry.choices)}]")
    variable = entry.env if isinstance(entry, Option) else None
    text = " ".join(part for part in parts if part)
    return f"{text}\n[env: {variable}]".lstrip("\n") if variable else text


def _commands(level: Level) -> list[tuple[str, str]]:
    return [_row(command) for command in level.commands.values()]


def _row(command: Command) -> tuple[str, str]:
    match command:
        case RunCommand():
            return command.name, command.description or command.run
        case PathCommand(level=None):
            return command.name, command.description or "(its manifest has a problem)"
        case _:
            return command.name, command.description


class _Page:
    """Text in blocks, with an empty line between them."""

    def __init__(self, terminal: Terminal) -> None:
        self._paint = terminal.paint
        self._width = terminal.width
        self._blocks: list[list[str]] = []

    def render(self) -> str:
        return "\n\n".join("\n".join(block) for block in self._blocks)

    def text(self, text: str) -> None:
        self._blocks.append(wrap(text, self._width))

    def title(self, name: str, description: str) -> None:
        if description:
            self.text(f"{name}: {description}")

    def usage(self, text: str) -> None:
        self._blocks.append([f"{self._paint.heading('Usage:')} {text}"])

    def section(self, heading: str, rows: Sequence[tuple[str, str]]) -> None:
        if rows:
            body = columns(rows, width=self._width, paint=self._paint)
            self._blocks.append([self._paint.heading(f"{heading}:"), *body])

    def lines(self, heading: str, lines: Sequence[str]) -> None:
        if lines:
            self._blocks.append(
                [self._paint.heading(f"{heading}:"), *(f"  {line}" for line in lines)]
            )

    def environment(self, env: dict[str, str]) -> None:
        self.lines("Environment", [f"{name}={shlex.quote(value)}" for name, value in env.items()])

    def docker(self, service: str | None) -> None:
        self.lines("Compose service", [service] if service else [])

    def missing(self, missing: Sequence[Missing]) -> None:
        places = [f"{shown_path(each.place.file)}:{each.place.line}" for each in missing]
        rows = list(zip(places, (each.message for each in missing), strict=True))
        self.section("Cannot run yet", rows)

    def problems(self, problems: Sequence[FdlError]) -> None:
        lines: list[str] = []
        for problem in problems:
            for each in problem.errors if isinstance(problem, ConfigErrors) else (problem,):
                lines += self._hanging(describe(each), first="  ", more="    ")
                lines += self._hanging(f"hint: {each.hint}", "    ", "    ") if each.hint else []
        if lines:
            heading = self._paint.alarm("Manifest problem:")
            self._blocks.append([heading, *lines])

    def _hanging(self, text: str, first: str, more: str) -> list[str]:
        wrapped = wrap(text, self._width - len(more))
        return [(more if index else first) + line for index, line in enumerate(wrapped)]
