"""Takes zip archives apart without trusting them."""

from __future__ import annotations

import shutil
import stat
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from zipfile import BadZipFile, ZipFile, ZipInfo

from flodl_cli.errors import ChecksumError, FdlError

_MOST_FOLDED = 200
"""How often over an honest archive of libraries is larger when unpacked, at the very most."""

_SMALL_BYTES = 64 << 20
_LONGEST_LINK = 4096
_DISTRUST = "do not use this archive; nothing of it was installed"


def extract(archive: Path, target: Path, place: Callable[[str], str | None]) -> None:
    """Unpack ``archive`` below ``target``, with symbolic links and permission to execute.

    ``place`` turns a member's name into its path below ``target``; ``None`` leaves it out.

    Raises:
        ChecksumError: The archive is damaged, or a member would end up outside ``target``.
            What was unpacked until then stays in ``target``.
        FdlError: It would not fit on the disk.
    """
    try:
        with ZipFile(archive) as opened:
            members = _members(opened, place)
            _refuse_bomb(archive, members, target)
            links = [each for each in members if _is_link(each[0])]
            for info, path in members:
                if not _is_link(info):
                    _write(opened, info, target / path)
            # Links come last, so that no member can be written through one.
            for info, path in links:
                _link(opened, info, target, path)
            for info, path in links:  # a later link may have changed where an earlier one leads
                _refuse_leading_out(target / path, info, target)
    except (FileExistsError, NotADirectoryError) as error:
        raise ChecksumError(
            f"{archive.name} holds {error.filename!r} both as a file and as a folder",
            hint=_DISTRUST,
        ) from error
    except (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ChecksumError(
            f"{archive.name} is damaged: {error}", hint="run the same command again"
        ) from error


def _members(
    opened: ZipFile, place: Callable[[str], str | None]
) -> list[tuple[ZipInfo, PurePosixPath]]:
    members: dict[PurePosixPath, ZipInfo] = {}
    for info in opened.infolist():
        name = place(info.filename)
        if not name:
            continue
        path = PurePosixPath(name)
        if _leaves(path, info.filename):
            raise ChecksumError(
                f"the archive holds {info.filename!r}, which leads out of it",
                hint=_DISTRUST,
            )
        if path in members and not info.is_dir():
            raise ChecksumError(f"the archive holds {info.filename!r} twice")
        members[path] = info
    return [(info, path) for path, info in members.items()]


def _leaves(path: PurePosixPath, written: str) -> bool:
    return path.is_absolute() or ".." in path.parts or "\\" in written or ":" in path.parts[0]


def _refuse_bomb(archive: Path, members: list[tuple[ZipInfo, PurePosixPath]], target: Path) -> None:
    size = sum(info.file_size for info, _ in members)
    if size > _SMALL_BYTES and size > _MOST_FOLDED * archive.stat().st_size:
        raise ChecksumError(
            f"{archive.name} would unpack to {size} bytes, over {_MOST_FOLDED} times its size",
            hint=_DISTRUST,
        )
    free = shutil.disk_usage(target).free
    if size > free:
        raise FdlError(
            f"{archive.name} needs {size >> 20} MiB unpacked, and {target} has {free >> 20} MiB",
            hint="make room, or choose another place with --path or FLODL_HOME",
        )


def _write(opened: ZipFile, info: ZipInfo, file: Path) -> None:
    if info.is_dir():
        file.mkdir(parents=True, exist_ok=True)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with opened.open(info) as source, file.open("xb") as stream:
        shutil.copyfileobj(source, stream, 1 << 20)
    if _mode(info) & stat.S_IXUSR:
        file.chmod(0o755)


def _link(opened: ZipFile, info: ZipInfo, target: Path, path: PurePosixPath) -> None:
    link = target / path
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.parent.resolve() != target.resolve() / path.parent:
        raise NotADirectoryError(0, "", str(path.parent))
    link.symlink_to(opened.read(info)[:_LONGEST_LINK].decode("utf-8", "replace"))
    _refuse_leading_out(link, info, target)


def _refuse_leading_out(link: Path, info: ZipInfo, target: Path) -> None:
    leads_to = link.readlink()
    end = (link.parent / leads_to).resolve()
    if leads_to.is_absolute() or not end.is_relative_to(target.resolve()):
        raise ChecksumError(
            f"the archive holds the link {info.filename!r} to {str(leads_to)!r}, "
            "which leads out of it",
            hint=_DISTRUST,
        )


def _is_link(info: ZipInfo) -> bool:
    return stat.S_ISLNK(_mode(info))


def _mode(info: ZipInfo) -> int:
    return info.external_attr >> 16
