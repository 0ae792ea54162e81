"""A client that means harm: what a portal must bear while a training runs beside it.

``python -m ddp_bench.overhead.attack PORT`` attacks this machine's port until its input ends, and
then prints how often each answer came. Streams that nobody reads, a thousand connections, guessed
tokens, paths that are huge, climb out or hold a NUL, half requests, noise, and the dearest answers
over and over.
"""

import asyncio
import contextlib
import json
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

STREAMS = 1000
_HASTY = 8
_OPEN_AT_ONCE = 64
_PAUSE_S = 0.02
_RETRY_S = 0.5

Kind = Callable[[random.Random], bytes]


def request(target: str, *headers: str) -> bytes:
    """Return the bytes of a GET request."""
    lines = [f"GET {target} HTTP/1.1", "Host: localhost", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1", "replace")


def guessed_token(rng: random.Random) -> bytes:
    """Ask with a token that is none."""
    return request("/paths", f"Authorization: Bearer {rng.getrandbits(128):x}")


def foul_path(rng: random.Random) -> bytes:
    """Ask for what no record path is."""
    names = ["a" * 10 ** rng.randint(2, 6), "..%2f..%2fetc", "%00", "root//x", "ö" * 300]
    return request(f"/{rng.choice(('node', 'history', 'series'))}?path=root/{rng.choice(names)}")


def dear_answer(rng: random.Random) -> bytes:
    """Ask for what costs most."""
    targets = ("/snapshot", "/history?n=8192", "/series?points=4000", "/export.jsonl", "/metrics")
    return request(rng.choice(targets))


def noise(rng: random.Random) -> bytes:
    """Send what is no request."""
    return rng.randbytes(rng.randint(1, 4096)) + b"\r\n\r\n"


KINDS: dict[str, Kind] = {
    "guessed token": guessed_token,
    "foul path": foul_path,
    "dear answer": dear_answer,
    "noise": noise,
}


class Attack:
    """All of it at once, against one port of this machine.

    Args:
        port: The port.
        streams: Connections that ask for a stream and never read.
    """

    def __init__(self, port: int, streams: int = STREAMS) -> None:
        self.answers: dict[str, Counter[str]] = {kind: Counter() for kind in (*KINDS, "stream")}
        """How often each first line of an answer came, by kind of request."""
        self._port = port
        self._streams = streams

    async def run(self, until: Awaitable[object]) -> None:
        """Attack until something has happened."""
        gate = asyncio.Semaphore(_OPEN_AT_ONCE)
        tasks = [
            asyncio.create_task(self._hasty(kind, make, number))
            for kind, make in KINDS.items()
            for number in range(_HASTY)
        ]
        tasks += [asyncio.create_task(self._unread(gate)) for _ in range(self._streams)]
        tasks += [asyncio.create_task(self._half_request()) for _ in range(_HASTY)]
        await until
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _hasty(self, kind: str, make: Kind, number: int) -> None:
        rng = random.Random(number)  # noqa: S311 (an attack that can be repeated)
        while True:
            async with self._connection() as streams:
                if streams is not None:
                    reader, writer = streams
                    writer.write(make(rng))
                    self.answers[kind][await _first_line(reader)] += 1
            await asyncio.sleep(_PAUSE_S)

    async def _unread(self, gate: asyncio.Semaphore) -> None:
        while True:
            async with gate, self._connection() as streams:
                if streams is not None:
                    reader, writer = streams
                    writer.write(request("/stream?path=root&alerts=root&clock=1"))
                    line = await _first_line(reader)
                    self.answers["stream"][line] += 1
                    if " 200 " in line:
                        await asyncio.sleep(60)
            await asyncio.sleep(_RETRY_S)

    async def _half_request(self) -> None:
        while True:
            async with self._connection() as streams:
                if streams is not None:
                    streams[1].write(b"GET /stream HTTP/1.1\r\nHost: loc")
                    await asyncio.sleep(60)
            await asyncio.sleep(_RETRY_S)

    @contextlib.asynccontextmanager
    async def _connection(
        self,
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter] | None]:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=4096)
        except OSError:
            yield None
            return
        try:
            yield reader, writer
        finally:
            writer.transport.abort()


async def _first_line(reader: asyncio.StreamReader) -> str:
    try:
        line = await asyncio.wait_for(reader.readline(), 30)
    except (OSError, TimeoutError, ValueError) as error:
        return type(error).__name__
    return line.decode("latin-1").strip() or "closed"


async def _main(port: int) -> None:
    attack = Attack(port)
    print("open", flush=True)  # noqa: T201 (a program's answer)
    await attack.run(asyncio.to_thread(sys.stdin.read))
    print(json.dumps(attack.answers))  # noqa: T201 (a program's answer)


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
