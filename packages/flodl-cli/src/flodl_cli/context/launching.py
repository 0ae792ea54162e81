"""How this call starts programs: with which variables, in which container."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from flodl_cli.args.schema import Schema
from flodl_cli.config.tree import Program
from flodl_cli.context.application import AppContext
from flodl_cli.project.schema import SCHEMA_FLAG, refresh_schema
from flodl_cli.runner import entry
from flodl_cli.runner.launch import ChildSettings, Launch, child_environment
from flodl_sys import names as variables


def environment_for(
    manifest_env: Mapping[str, str], project_root: str, context: AppContext
) -> dict[str, str]:
    """The variables that are added for a program of the project at ``project_root``."""
    from flodl_cli.libtorch.active import gpu_feature

    flags = context.flags
    settings = ChildSettings(
        verbosity=flags.verbosity,
        color=flags.color,
        gpus=flags.gpus,
        project_root=project_root,
        overlay=context.overlay,
        gpu_feature=gpu_feature(Path(project_root), context.environ),
    )
    return child_environment(settings, manifest_env, context.environ)


def in_service(
    launch: Launch,
    line: str | None,
    service: str,
    manifest_env: Mapping[str, str],
    context: AppContext,
) -> Launch:
    """The same command in a compose service; unchanged inside a container.

    ``line`` is the shell line of a run command, and ``None`` for an entry.

    Raises:
        FdlError: There is no compose file that can be read.
    """
    from flodl_cli.host.system import in_container
    from flodl_cli.libtorch.active import compose_variables
    from flodl_cli.runner import docker

    if in_container():
        return launch
    compose = docker.find_compose(launch.directory)
    chosen, remark = docker.pick_service(service, compose, launch.env[variables.GPU_FEATURE.name])
    if remark is not None:
        context.terminal.note(remark)
    passed_on = {**manifest_env, **_asked_for(launch.env, context)}
    if line is not None:
        argv = docker.wrap_line(line, chosen, passed_on)
    else:
        argv = docker.wrap_entry(launch.argv, launch.directory, chosen, compose, passed_on)
    return Launch(
        shown=shlex.join(argv),
        argv=tuple(argv),
        directory=compose.directory,
        env={**compose_variables(Path(compose.directory), context.environ), **launch.env},
    )


def refresh(program: Program, project_root: str, context: AppContext) -> Schema:
    """Ask a program for its schema, in its container if it has one, and keep the answer.

    Raises:
        FdlError: It does not answer with a schema.
    """
    argv = entry.compose(program._replace(flags=(), args=()), (SCHEMA_FLAG,))
    launch = Launch(
        shown=shlex.join(argv),
        argv=tuple(argv),
        directory=program.directory,
        env=environment_for(program.env, project_root, context),
    )
    if program.docker is not None:
        launch = in_service(launch, None, program.docker, program.env, context)
    return refresh_schema(program, launch.argv, launch.directory, {**context.environ, **launch.env})


def _asked_for(env: Mapping[str, str], context: AppContext) -> dict[str, str]:
    """What this command line asks for, which a container would not see otherwise."""
    flags = context.flags
    names = [variables.VERBOSITY.name] if flags.verbosity is not None else []
    names += [variables.COLOR.name] if flags.color is not None else []
    names += [variables.ENV.name] if context.overlay is not None else []
    names += ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"] if flags.gpus is not None else []
    return {name: env[name] for name in names}
