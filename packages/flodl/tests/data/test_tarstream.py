from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch

from flodl.core.errors import (
    ConfigError,
    DatasetFormatError,
    DatasetUnavailableError,
    DataWorkerError,
)
from flodl.data import DataLoader, TarStream
from flodl.data.tarstream import expand_braces

DECODERS_OF_BYTES: dict[str, Any] = {"x": bytes, "n": bytes.decode}
DECODERS = {"x": lambda data: torch.tensor(list(data)), "cls": int}


def write(path: Path, samples: list[int], mode: str = "w", **extra: bytes) -> None:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for number in samples:
            files = {"x": bytes([number, number]), "cls": str(number).encode(), **extra}
            for key, content in files.items():
                info = tarfile.TarInfo(f"train/{number:04d}.{key}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))


@pytest.fixture
def shards(tmp_path: Path) -> str:
    for shard in range(4):
        write(tmp_path / f"a-{shard:04d}.tar", list(range(shard * 5, shard * 5 + 5)))
    return str(tmp_path / "a-{0000..0003}.tar")


def labels(batches: Any) -> list[int]:
    return [label for batch in batches for label in batch["cls"].tolist()]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("plain.tar", ["plain.tar"]),
        ("a-{08..11}.tar", ["a-08.tar", "a-09.tar", "a-10.tar", "a-11.tar"]),
        ("{x,y}-{0..1}", ["x-0", "x-1", "y-0", "y-1"]),
    ],
)
def test_braces_count_and_list(pattern: str, names: list[str]) -> None:
    assert expand_braces(pattern) == names


@pytest.mark.parametrize("pattern", ["a-{0..3.tar", "a-{3..0}.tar"])
def test_braces_that_mean_nothing_are_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="pattern"):
        expand_braces(pattern)


def test_files_of_a_sample_become_its_fields(shards: str) -> None:
    stream = TarStream([shards], DECODERS, shuffle=False)
    batches = list(DataLoader.from_iterable(stream, 4))
    assert labels(batches) == list(range(20))
    assert batches[0].names == ("x", "cls")
    assert batches[1]["x"].tolist() == [[n, n] for n in range(4, 8)]


def test_archives_change_places_each_epoch_and_repeat_for_a_seed(shards: str) -> None:
    loader = DataLoader.from_iterable(TarStream([shards], DECODERS), 4)
    orders = [labels(loader.epoch(number)) for number in (0, 1, 0)]
    assert orders[0] == orders[2] != orders[1]
    assert sorted(orders[1]) == list(range(20))


@pytest.mark.parametrize("world", [1, 2, 3, 4, 7])
def test_ranks_share_the_archives_or_their_samples(
    shards: str, world: int, caplog: pytest.LogCaptureFixture
) -> None:
    found: list[int] = []
    for rank in range(world):
        loader = DataLoader.from_iterable(TarStream([shards], DECODERS), 2, drop_last=False)
        loader.partition(rank, world)
        found += labels(loader.epoch(0))
    assert sorted(found) == list(range(20))
    assert ("4 archives for 7 ranks" in caplog.text) == (world == 7)


@pytest.mark.parametrize("taken", range(6))
@pytest.mark.parametrize("world", [1, 2, 7])
def test_reading_goes_on_at_the_archive_and_sample(shards: str, taken: int, world: int) -> None:
    def loader() -> Any:
        made = DataLoader.from_iterable(TarStream([shards], DECODERS), 4, drop_last=False)
        made.partition(1 % world, world)
        return made

    whole = labels(loader().epoch(1))
    first = loader()
    epoch = first.epoch(1)
    head: list[int] = []
    for _ in range(taken):
        batch = next(epoch, None)
        head += [] if batch is None else batch["cls"].tolist()
    state = first.state_dict()
    second = loader()
    second.load_state_dict(state)
    assert head + labels(second.epoch(1)) == whole
    epoch.close()


def test_compressed_archives_and_other_keys_are_read(tmp_path: Path) -> None:
    write(tmp_path / "b.tar.gz", [1, 2], "w:gz", json=b"{}")
    stream = TarStream([tmp_path / "b.tar.gz"], DECODERS)
    assert [sample["cls"] for sample in stream] == [1, 2]


@pytest.mark.parametrize("format_", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_kind_of_header_is_read_as_tarfile_reads_it(tmp_path: Path, format_: int) -> None:
    names = ["a", "train/b", "träin/ü", f"{'d' * 90}/c", "é" * 60, "x" * 95, "with space/0 1"]
    if format_ == tarfile.USTAR_FORMAT:
        names.remove("é" * 60)  # more bytes than such a header has room for
    with tarfile.open(tmp_path / "a.tar", "w", format=format_, encoding="utf-8") as archive:
        folder = tarfile.TarInfo("train")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        link = tarfile.TarInfo("train/link.x")
        link.type, link.linkname = tarfile.SYMTYPE, "b.x"
        archive.addfile(link)
        for number, name in enumerate(names):
            for key, content in (("x", bytes(range(number * 100 % 255))), ("n", name.encode())):
                info = tarfile.TarInfo(f"{name}.{key}")
                info.size, info.mtime = len(content), 1.5
                archive.addfile(info, io.BytesIO(content))
        old = tarfile.TarInfo("old.x")
        old.type = tarfile.AREGTYPE
        archive.addfile(old)
        archive.addfile(tarfile.TarInfo("old.n"))
    read = list(TarStream([tmp_path / "a.tar"], DECODERS_OF_BYTES))
    assert [sample["n"] for sample in read] == [*names, ""]
    assert [sample["x"] for sample in read] == [
        *(bytes(range(number * 100 % 255)) for number in range(len(names))),
        b"",
    ]


def test_a_sample_without_a_key_is_named(tmp_path: Path) -> None:
    write(tmp_path / "c.tar", [1])
    stream = TarStream([tmp_path / "c.tar"], {**DECODERS, "png": bytes})
    with pytest.raises(DatasetFormatError, match=r"c.tar: sample 'train/0001' has no png"):
        list(stream)


def test_a_decoder_that_raises_is_named(tmp_path: Path) -> None:
    write(tmp_path / "c.tar", [1])
    stream = TarStream([tmp_path / "c.tar"], {"x": int})
    with pytest.raises(DatasetFormatError, match="x of sample 'train/0001': invalid literal"):
        list(stream)


@pytest.mark.parametrize("damage", ["cut", "garbage", "cut gzip"])
def test_a_damaged_archive_is_an_error_or_left_out_and_counted(
    damage: str, shards: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a-0001.tar"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:2600])
    elif damage == "garbage":
        path.write_bytes(b"no archive" * 100)
    else:
        path.unlink()
        write(path, [5, 6, 7, 8, 9], "w:gz", noise=bytes(range(256)))
        path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataWorkerError, match=r"a-0001.tar"):
        list(DataLoader.from_iterable(TarStream([shards], DECODERS, shuffle=False), 1))
    stream = TarStream([shards], DECODERS, shuffle=False, on_error="skip")
    found = labels(DataLoader.from_iterable(stream, 1))
    assert set(range(20)) - set(found) <= {5, 6, 7, 8, 9}
    assert len(found) == len(set(found))
    assert stream.skipped == 1
    assert "the rest is left out (1 so far)" in caplog.text


@pytest.mark.parametrize("suffix", ["tar", "tar.gz", "tar.bz2", "tar.xz"])
def test_no_cut_and_no_changed_header_loses_samples_silently(tmp_path: Path, suffix: str) -> None:
    mode = "w" if suffix == "tar" else f"w:{suffix[4:]}"
    path = tmp_path / f"a.{suffix}"
    write(path, [1, 2, 3], mode)
    sound = path.read_bytes()
    marked = 3 * 2 * 1024 + 512 if suffix == "tar" else len(sound)  # then there is padding alone
    step = 128 if suffix == "tar" else 5
    damaged = [sound[:cut] for cut in range(0, marked, step)]
    if suffix != "tar.xz":  # it has padding of its own
        places = range(0, marked, 1024 if suffix == "tar" else 7)
        damaged += [sound[:at] + bytes([sound[at] ^ 0x55]) + sound[at + 1 :] for at in places]
    for content in damaged:
        path.write_bytes(content)
        found: list[int] = []
        try:
            found += labels(DataLoader.from_iterable(TarStream([path], DECODERS), 1))
        except DataWorkerError as error:
            assert f"a.{suffix}" in str(error)
        else:  # the damage was to a name or a date in the header of the compressed file
            assert suffix != "tar"
            assert found == [1, 2, 3]


def test_an_end_mark_in_the_middle_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    write(path, [1, 2, 3])
    sound = path.read_bytes()
    path.write_bytes(sound[:2048] + bytes(1024) + sound[3072:])
    with pytest.raises(DataWorkerError, match="data after the end mark"):
        list(DataLoader.from_iterable(TarStream([path], DECODERS), 1))


@pytest.mark.parametrize(
    ("patterns", "options"),
    [([], {}), ("a.tar", {}), (["a.tar"], {"decoders": {}}), (["a.tar"], {"on_error": "ignore"})],
)
def test_unusable_arguments_are_refused(patterns: Any, options: Any) -> None:
    with pytest.raises(ConfigError):
        TarStream(patterns, **{"decoders": DECODERS, **options})


def test_missing_archives_are_counted(shards: str, tmp_path: Path) -> None:
    (tmp_path / "a-0002.tar").unlink()
    with pytest.raises(DatasetUnavailableError, match=r"a-0002.tar: no such archive \(1 of 4"):
        TarStream([shards], DECODERS)
