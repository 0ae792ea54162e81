"""Fetches large files: retried, resumed where they broke off, never taken for another file."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

import httpx

from flodl_cli import __version__
from flodl_cli.errors import DownloadError

_RETRY_DELAYS_S = (1, 2, 4, 8, 16)
_ATTEMPTS = 5
_CHUNK_BYTES = 1 << 20
_TIMEOUT_S = 30.0
_DIGEST_HEADER = "x-amz-meta-checksum-sha256"
_TRY_LATER = 429
_NO_ADDRESS = (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.TooManyRedirects, UnicodeError)
_MISSING = (403, 404)  # some hosts answer 403 for a file that is not there


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetched:
    """A complete file: where it lies, its size, its digest, and the digest the server told."""

    path: Path
    size_bytes: int
    sha256: str
    told_sha256: str | None


@dataclass(frozen=True, slots=True)
class _Origin:
    """What a part file is a part of."""

    url: str
    etag: str
    total: int | None
    told_sha256: str | None


class _Interrupted(Exception):
    """The transfer broke off; another attempt may go on from where it did."""


class Fetcher:
    """Fetches files over one client.

    Args:
        client: From `open_client`.
        on_size: Called with the whole size of a file before any of it is written.
        on_progress: Called with the bytes that are there and the whole size.
        sleep: Waits between attempts.
    """

    def __init__(
        self,
        client: httpx.Client,
        *,
        on_size: Callable[[int], None] = lambda _total: None,
        on_progress: Callable[[int, int | None], None] = lambda _done, _total: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._on_size = on_size
        self._on_progress = on_progress
        self._sleep = sleep

    def fetch(self, url: str, part: Path) -> Fetched:
        """Fetch ``url`` into ``part``, going on with what ``part`` already holds of it.

        An interrupted fetch leaves ``part`` and a note beside it, from which the next one resumes;
        a finished one leaves both too, and needs no network the next time. See `forget`.

        Raises:
            DownloadError: The file is not there, the address is none, or five attempts failed.
            OSError: ``part`` cannot be written.
        """
        reason = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._sleep(_RETRY_DELAYS_S[attempt - 1])
            try:
                told = self._attempt(url, part)
            except _NO_ADDRESS as error:
                raise DownloadError(
                    f"{url} cannot be fetched: {error}",
                    url=url,
                    hint="check the address: --mirror or FDL_LIBTORCH_MIRROR, such as https://HOST",
                ) from error
            except (httpx.TransportError, _Interrupted) as error:
                reason = str(error) or type(error).__name__
                continue
            return Fetched(
                path=part,
                size_bytes=part.stat().st_size,
                sha256=digest_of(part),
                told_sha256=told,
            )
        raise DownloadError(
            f"{url}: {reason}, {_ATTEMPTS} times in a row",
            url=url,
            hint="run the same command again to go on with what has arrived; "
            "behind a proxy, set HTTPS_PROXY or --proxy",
        )

    def _attempt(self, url: str, part: Path) -> str | None:
        origin, have = _resumable(url, part)
        if origin is not None and have == origin.total:  # ended after the last byte
            return origin.told_sha256
        headers = {"Accept-Encoding": "identity"}
        if origin is not None:
            headers |= {"Range": f"bytes={have}-", "If-Range": origin.etag}
        with self._client.stream("GET", url, headers=headers) as response:
            self._refuse(response, url)
            goes_on = origin is not None and _continues(response, origin, have)
            if response.status_code != httpx.codes.OK and not goes_on:
                forget(part)
                raise _Interrupted("the file changed on the server")
            if not goes_on:
                have = 0
            length = response.headers.get("content-length")
            total = have + int(length) if length is not None else None
            if total is not None and not goes_on:
                self._on_size(total)
            told = response.headers.get(_DIGEST_HEADER, "").lower() or None
            _note_origin(part, _Origin(url, response.headers.get("etag", ""), total, told))
            self._write(response.iter_raw(), part, have, total)
            return told

    def _write(self, chunks: Iterator[bytes], part: Path, have: int, total: int | None) -> None:
        with part.open("ab" if have else "wb") as stream:
            for chunk in chunks:
                stream.write(chunk)
                have += len(chunk)
                self._on_progress(have, total)
        if total is not None and have != total:
            raise _Interrupted(f"{have} of {total} bytes arrived")

    def _refuse(self, response: httpx.Response, url: str) -> None:
        status = response.status_code
        if status == _TRY_LATER or response.is_server_error:
            raise _Interrupted(f"the server answers {status} {response.reason_phrase}")
        if status in _MISSING:
            raise DownloadError(f"{url} is not published (the server answers {status})", url=url,
                                status=status)  # fmt: skip
        if response.is_client_error and status != httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise DownloadError(
                f"{url}: the server answers {status} {response.reason_phrase}",
                url=url,
                status=status,
            )


def open_client(proxy: str | None = None) -> httpx.Client:
    """A client that follows redirects and uses the proxies and certificates of the environment.

    Raises:
        DownloadError: ``proxy`` is no address of a proxy.
    """
    try:
        return httpx.Client(
            proxy=proxy,
            headers={"User-Agent": f"flodl-cli/{__version__}"},  # without one some hosts refuse
            follow_redirects=True,
            timeout=_TIMEOUT_S,
        )
    except (ValueError, ImportError, httpx.InvalidURL) as error:
        raise DownloadError(
            f"proxy {proxy!r} cannot be used: {error}",
            url=proxy or "",
            hint="give it as http://HOST:PORT",
        ) from error


def digest_of(file: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    digest = sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def origin_note(part: Path) -> Path:
    """The file that says what ``part`` is a part of."""
    return part.with_name(f"{part.name}.json")


def forget(part: Path) -> None:
    """Delete what was fetched into ``part``, so that the next fetch starts anew."""
    part.unlink(missing_ok=True)
    origin_note(part).unlink(missing_ok=True)


def _resumable(url: str, part: Path) -> tuple[_Origin | None, int]:
    """What ``part`` is a part of and how much of it there is; nothing when it cannot be told."""
    try:
        origin = _Origin(**json.loads(origin_note(part).read_text(encoding="utf-8")))
        have = part.stat().st_size
    except (OSError, ValueError, TypeError):
        return None, 0
    # A weak tag, or none, does not promise the same bytes.
    strong = origin.etag.startswith('"')
    return (origin, have) if origin.url == url and strong and have else (None, 0)


def _continues(response: httpx.Response, origin: _Origin, have: int) -> bool:
    if response.status_code != httpx.codes.PARTIAL_CONTENT:
        return False
    starts: bool = response.headers.get("content-range", "").startswith(f"bytes {have}-")
    same: bool = response.headers.get("etag", origin.etag) == origin.etag
    return starts and same


def _note_origin(part: Path, origin: _Origin) -> None:
    part.parent.mkdir(parents=True, exist_ok=True)
    origin_note(part).write_text(json.dumps(asdict(origin)), encoding="utf-8")
