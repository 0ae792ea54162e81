"""Puts a finished folder in its place: the old one stays whole until the new one is there."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from flodl_cli.errors import LibtorchError
from flodl_cli.libtorch.store import STAGING


@contextlib.contextmanager
def staged(target: Path) -> Iterator[Path]:
    """A new folder beside ``target`` that becomes ``target`` when the block ends well.

    When it ends with an exception, Ctrl-C included, the folder is deleted and ``target`` is as it
    was.

    Raises:
        LibtorchError: The folder cannot be made, filled or put in place.
    """
    staging = target.parent / f"{STAGING}{target.name}-{os.getpid()}"
    try:
        _clear(staging)
        staging.mkdir(parents=True)
    except OSError as error:
        raise LibtorchError(
            f"{target.parent} cannot be written: {error.strerror}",
            hint="choose a folder of your own with --root, --path or FLODL_HOME",
        ) from error
    try:
        yield staging
        _swap(staging, target)
    except OSError as error:
        about = f"{error.filename}: " if error.filename else ""
        raise LibtorchError(
            f"{target} cannot be made: {about}{error.strerror or error}",
            hint="make room, or choose another place: --root, --path or FLODL_HOME",
        ) from error
    finally:
        _clear(staging)


def _swap(staging: Path, target: Path) -> None:
    aside = target.parent / f"{STAGING}old-{target.name}-{os.getpid()}"
    had_one = target.exists()
    try:
        if had_one:
            target.rename(aside)
        try:
            staging.rename(target)
        except BaseException:
            if had_one:
                aside.rename(target)
            raise
    except OSError as error:
        raise LibtorchError(f"{target} cannot be put in place: {error.strerror}") from error
    _clear(aside)


def _clear(folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)
