"""Files of a model: in a local directory, or in one commit of a repository on the Hub.

``huggingface_hub`` keeps the cache and makes the requests; it is loaded on first use.
"""

from __future__ import annotations

import errno
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from flodl_hf.errors import ConfigError, HubError, OfflineError, RepoNotFoundError
from flodl_hf.extras import load_extra
from flodl_hf.hub.repo import check_repo_id

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class HubOptions:
    """How files are looked for; the fields are those of ``from_pretrained``.

    Attributes:
        revision: Branch, tag or commit.
        subfolder: Folder inside the repository or directory.
        cache_dir: Instead of the usual cache of ``huggingface_hub``.
        local_files_only: Make no request; ``None`` leaves it to ``HF_HUB_OFFLINE``.
        token: For repositories that need one; ``None`` leaves it to ``huggingface_hub``.
    """

    revision: str | None = None
    subfolder: str | None = None
    cache_dir: str | os.PathLike[str] | None = None
    local_files_only: bool | None = None
    token: str | bool | None = None


class FileSet(Protocol):
    """The files of one model, all of one version."""

    title: str
    repo_id: str | None
    revision: str | None
    subfolder: str | None

    def find(self, name: str) -> Path | None:
        """Return where a file lies on this machine, or ``None`` when the model has none."""
        ...

    def require(self, name: str) -> Path:
        """Return where a file lies on this machine; it must be there."""
        ...


def locate(source: str | os.PathLike[str], options: HubOptions) -> FileSet:
    """Return the files of an existing directory, else of a repository on the Hub.

    Raises:
        RepoIdError: The name is neither.
        HubError: The repository cannot be reached.
    """
    path = Path(source)
    if os.fspath(source) and path.is_dir():
        if "/" not in str(source) and isinstance(source, str):
            _log.info("%r is a local directory: loading %s", source, path.resolve())
        folder = path / options.subfolder if options.subfolder else path
        return LocalFiles(folder)
    return HubFiles(check_repo_id(os.fspath(source)), options)


def converted_folder(repo_id: str, revision: str, subfolder: str | None = None) -> Path:
    """Return where a converted copy of a commit's weights lies."""
    home = load_extra("huggingface_hub.constants", "hub").HF_HOME
    return Path(home) / "flodl-converted" / repo_id / revision / (subfolder or "")


class LocalFiles:
    """The files of a directory."""

    repo_id: str | None = None
    revision: str | None = None
    subfolder: str | None = None

    def __init__(self, folder: Path) -> None:
        self.title = str(folder)
        self._folder = folder

    def find(self, name: str) -> Path | None:
        """Return the path of a file, or ``None``."""
        path = self._folder / name
        return path if path.is_file() else None

    def require(self, name: str) -> Path:
        """Return the path of a file.

        Raises:
            ConfigError: There is none.
        """
        path = self.find(name)
        if path is None:
            raise ConfigError(
                "", f"{self.title}: no {name}", hint="name a directory of a saved model"
            )
        return path


class HubFiles:
    """The files of one commit of a repository.

    The commit is found with the first file; every later one comes from it, whatever becomes of
    the branch meanwhile.
    """

    def __init__(self, repo_id: str, options: HubOptions) -> None:
        self.repo_id: str | None = repo_id
        self.revision: str | None = None
        self.subfolder = options.subfolder
        self.title = repo_id
        self._repo = repo_id
        self._options = options
        self._lib = load_extra("huggingface_hub", "hub")
        self._errors = load_extra("huggingface_hub.errors", "hub")
        self._found: dict[str, Path | None] = {}

    def require(self, name: str) -> Path:
        """Return where a file lies in the cache, after fetching it if need be.

        Raises:
            HubError: It cannot be had; its kinds say why.
        """
        path = self._fetch(name, is_needed=True)
        assert path is not None, "a needed file that is missing was raised"
        return path

    def find(self, name: str) -> Path | None:
        """Return where a file lies in the cache, or ``None`` when the commit has none.

        Raises:
            HubError: It cannot be had for another reason.
        """
        return self._fetch(name, is_needed=False)

    def _fetch(self, name: str, *, is_needed: bool) -> Path | None:
        if name not in self._found:
            self._found[name] = self._download(name, is_needed=is_needed)
        path = self._found[name]
        if path is None and is_needed:
            raise RepoNotFoundError(
                f"{self._repo}: no file {name} at revision {self._at()}",
                hint="check the revision, and whether the repository holds a model",
            )
        return path

    def _at(self) -> str:
        return self.revision or self._options.revision or "main"

    def _download(self, name: str, *, is_needed: bool) -> Path | None:
        errors = self._errors
        options = self._options
        offline = bool(options.local_files_only)
        try:
            path = Path(
                self._lib.hf_hub_download(
                    self._repo,
                    name,
                    subfolder=options.subfolder,
                    revision=self._at(),
                    cache_dir=options.cache_dir,
                    local_files_only=offline,
                    token=options.token,
                )
            )
        except errors.LocalEntryNotFoundError as error:
            if not is_needed and (offline or self._lib.is_offline_mode()):
                return None
            raise self._unreachable(name, error) from error
        except errors.EntryNotFoundError:
            return None
        except errors.HfHubHTTPError as error:
            raise self._refused(name, error) from error
        except OSError as error:
            raise self._unwritten(name, error) from error
        self._note_commit(path, name)
        return path

    def _note_commit(self, path: Path, name: str) -> None:
        if self.revision is None:
            depth = len(Path(self._options.subfolder or "", name).parts)
            self.revision = path.parents[depth - 1].name

    def _unreachable(self, name: str, error: Exception) -> HubError:
        cache = (
            self._options.cache_dir or load_extra("huggingface_hub.constants", "hub").HF_HUB_CACHE
        )
        where = f"{self._repo} at {self._at()}: {name} is not in the cache {cache}"
        if self._options.local_files_only or self._lib.is_offline_mode():
            return OfflineError(
                f"{where}, and no request may be made",
                hint="load it once with the network, or leave out local_files_only and "
                "HF_HUB_OFFLINE",
            )
        cause = error.__cause__ or error
        status = getattr(getattr(cause, "response", None), "status_code", None)
        said = type(cause).__name__ if status is None else f"HTTP {status}"
        return HubError(
            f"{where}, and the Hub cannot be reached ({said})",
            hint="check the network, or HF_ENDPOINT",
        )

    def _refused(self, name: str, error: Any) -> HubError:
        status = getattr(getattr(error, "response", None), "status_code", None)
        kind = type(error).__name__
        what = f"{self._repo} at {self._at()}, {name}: HTTP {status} ({kind})"
        if kind == "GatedRepoError" or status == 403:
            return RepoNotFoundError(
                f"{what}: access is refused",
                hint="accept the model's conditions on its page, and log in or pass token=",
            )
        if status in {401, 404}:
            return RepoNotFoundError(
                f"{what}: no such repository or revision, or it is private",
                hint="check the spelling of id and revision; a private one needs token=",
            )
        return HubError(what, hint="try again later")

    def _unwritten(self, name: str, error: OSError) -> HubError:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        return HubError(
            f"{self._repo}, {name}: cannot be stored: {error.strerror or type(error).__name__}",
            hint="free space, or choose another cache_dir" if full else "check the cache directory",
        )
