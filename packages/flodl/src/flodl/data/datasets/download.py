"""Files over HTTPS: resumed where they broke off, checked, and there whole or not at all."""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from flodl.core.errors import ChecksumError, DatasetUnavailableError
from flodl.core.units import format_bytes

if TYPE_CHECKING:
    from flodl.data.datasets.catalog import PublishedFile

TRIES = 3
TIMEOUT_S = 30.0
LONGEST_PAUSE_S = 60.0
PROGRESS_S = 5.0
_CHUNK = 1 << 16
_NO_SUCH_RANGE = 416
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpSettings:
    """How files are fetched; tests change clock, pauses and schemes."""

    tries: int = TRIES
    """Rounds through all addresses of a file."""
    timeout_s: float = TIMEOUT_S
    """For connecting, and for each read."""
    schemes: tuple[str, ...] = ("https",)
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic


class _FailedTry(Exception):
    """One address did not give the file this time; ``pause_s`` is what its server asked for."""

    def __init__(self, reason: str, *, pause_s: float = 0.0) -> None:
        super().__init__(reason)
        self.pause_s = pause_s


def download(file: PublishedFile, target: Path, settings: HttpSettings | None = None) -> None:
    """Fetch a published file to ``target``.

    It is written to ``<target>.part``, which a later call goes on with, and renamed when its bytes
    are the published ones. Proxies are those of the environment.

    Raises:
        DatasetUnavailableError: No address gave it; says what each did.
        ChecksumError: The addresses give other bytes than the published ones.
    """
    how = settings or HttpSettings()
    partial = target.with_name(target.name + ".part")
    failures: list[str] = []
    are_bytes_wrong = False
    for number in range(how.tries):
        pause_s = 0.0
        for url in file.urls:
            try:
                _Fetch(file, url, partial, how).run()
            except ChecksumError as error:
                are_bytes_wrong = True
                failures.append(f"{url}: {error.message}")
                continue
            except _FailedTry as error:
                are_bytes_wrong = False
                failures.append(f"{url}: {error}")
                pause_s = max(pause_s, error.pause_s)
                continue
            partial.replace(target)
            return
        logger.warning("%s: try %d of %d: %s", file.name, number + 1, how.tries, failures[-1])
        if number + 1 < how.tries:
            how.sleep(min(max(2.0**number, pause_s), LONGEST_PAUSE_S))
    text = f"{file.name} could not be fetched:" + "".join(f"\n  {line}" for line in failures)
    if are_bytes_wrong:
        raise ChecksumError(text, hint="something on the way changes the file, such as a proxy")
    raise DatasetUnavailableError(
        text, hint='check the network, or take the small embedded set with source="mini"'
    )


class _Fetch:
    """One try at one address."""

    def __init__(
        self, file: PublishedFile, url: str, partial: Path, settings: HttpSettings
    ) -> None:
        self._file = file
        self._url = url
        self._partial = partial
        self._settings = settings

    def run(self) -> None:
        """Bring the partial file up to the published one.

        Raises:
            _FailedTry: The server did not give all of it; what it gave is kept where it may be
                of use.
            ChecksumError: It is complete and wrong, and was removed.
        """
        have = self._partial.stat().st_size if self._partial.exists() else 0
        if have > self._file.size:
            self._partial.unlink()
            have = 0
        if have < self._file.size:
            try:
                self._fetch(have)
            except (OSError, http.client.HTTPException, ValueError) as error:
                if isinstance(error, urllib.error.HTTPError) and error.code == _NO_SUCH_RANGE:
                    self._partial.unlink(missing_ok=True)
                raise _failed(error) from error
        self._check()

    def _fetch(self, have: int) -> None:
        headers = {"Range": f"bytes={have}-"} if have else {}
        request = urllib.request.Request(self._url, headers=headers)  # noqa: S310 - checked
        with self._open(request) as response:
            start = self._start_of(response, have)
            with self._partial.open("r+b" if self._partial.exists() else "wb") as file:
                file.truncate(start)
                file.seek(start)
                self._copy(response, file, start)
                file.flush()
                os.fsync(file.fileno())

    def _open(self, request: urllib.request.Request) -> Any:
        _check_scheme(self._url, self._settings.schemes)
        opener = urllib.request.build_opener(_Redirects(self._settings.schemes))
        return opener.open(request, timeout=self._settings.timeout_s)

    def _start_of(self, response: Any, have: int) -> int:
        """Return where in the file the body begins: servers ignore ranges, or get them wrong."""
        if not have or response.status == 200:
            return 0
        found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        is_right = found is not None and int(found[1]) == have
        if is_right and found is not None and found[3] not in {"*", str(self._file.size)}:
            is_right = False
        if not is_right:
            self._partial.unlink()
            said = response.headers.get("Content-Range")
            raise _FailedTry(f"asked for bytes from {have}, the server sent {said!r}")
        return have

    def _copy(self, response: Any, file: IO[bytes], start: int) -> None:
        """Copy the body, and not a byte more than the file has."""
        size, settings = self._file.size, self._settings
        have, told_at = start, settings.clock()
        while have < size:
            chunk = response.read(min(_CHUNK, size - have))
            if not chunk:
                raise _FailedTry(f"the connection ended after {have} of {size} bytes")
            file.write(chunk)
            have += len(chunk)
            if settings.clock() - told_at >= PROGRESS_S:
                told_at = settings.clock()
                logger.info("%s: %s of %s", self._file.name, format_bytes(have), format_bytes(size))

    def _check(self) -> None:
        digest = hashlib.sha256()
        with self._partial.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
        if digest.hexdigest() != self._file.sha256:
            self._partial.unlink()
            raise ChecksumError(
                f"{self._file.size} bytes with SHA-256 {digest.hexdigest()}: expected "
                f"{self._file.sha256}"
            )


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects that do not leave the allowed schemes."""

    def __init__(self, schemes: tuple[str, ...]) -> None:
        self._schemes = schemes

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Return the request of the new address."""
        _check_scheme(newurl, self._schemes)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_scheme(url: str, schemes: tuple[str, ...]) -> None:
    if urlsplit(url).scheme not in schemes:
        raise _FailedTry(f"{url} is not fetched: only {', '.join(schemes)} addresses are")


def _failed(error: Exception) -> _FailedTry:
    if isinstance(error, urllib.error.HTTPError):
        with error:
            return _FailedTry(
                f"HTTP status {error.code} {error.reason}", pause_s=_asked_pause(error)
            )
    if isinstance(error, urllib.error.URLError):
        return _FailedTry(str(error.reason))
    return _FailedTry(f"{type(error).__name__}: {error}")


def _asked_pause(error: urllib.error.HTTPError) -> float:
    """Return the seconds a busy server asks to wait; dates, the other legal form, count as none."""
    if error.code not in {429, 503}:
        return 0.0
    asked = error.headers.get("Retry-After", "")
    return float(asked) if asked.isdecimal() else 0.0
