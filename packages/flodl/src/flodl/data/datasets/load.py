"""One call for each built-in data set, full or mini: the same files read by the same parsers."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from flodl.core.errors import ConfigError
from flodl.core.log import warn_once
from flodl.data.datasets.cache import CachedFiles
from flodl.data.datasets.catalog import CATALOG
from flodl.data.datasets.cifar10 import MEMBERS, Cifar10, Split
from flodl.data.datasets.embedded import EmbeddedFiles
from flodl.data.datasets.mnist import Mnist
from flodl.data.datasets.shakespeare import Shakespeare
from flodl.data.sampler import whole_number
from flodl_sys.names import DATA_SOURCE as DATA_SOURCE_VARIABLE

if TYPE_CHECKING:
    from flodl.data.datasets.catalog import DatasetName
    from flodl.data.datasets.files import StrPath
    from flodl.data.datasets.images import Normalize

DataSource: TypeAlias = Literal["real", "mini"]
Files: TypeAlias = CachedFiles | EmbeddedFiles

TRAIN_FRACTION = 0.9

logger = logging.getLogger(__name__)


@overload
def load(
    name: Literal["mnist"],
    *,
    split: Split = ...,
    source: DataSource | None = ...,
    root: StrPath | None = ...,
    offline: bool | None = ...,
    normalize: Normalize = ...,
) -> Mnist: ...


@overload
def load(
    name: Literal["cifar10"],
    *,
    split: Split = ...,
    source: DataSource | None = ...,
    root: StrPath | None = ...,
    offline: bool | None = ...,
    normalize: Normalize = ...,
) -> Cifar10: ...


@overload
def load(
    name: Literal["shakespeare"],
    *,
    split: Split = ...,
    source: DataSource | None = ...,
    root: StrPath | None = ...,
    offline: bool | None = ...,
    seq_len: int,
    stride: int | None = ...,
    max_chars: int | None = ...,
) -> Shakespeare: ...


def load(
    name: DatasetName,
    *,
    split: Split = "train",
    source: DataSource | None = None,
    root: StrPath | None = None,
    offline: bool | None = None,
    **options: Any,
) -> Mnist | Cifar10 | Shakespeare:
    """Return one split of a built-in data set.

    Args:
        name: ``"mnist"``, ``"cifar10"`` or ``"shakespeare"``.
        split: ``"train"`` or ``"test"``.
        source: ``"real"`` for the published files in the cache folder, checked by their SHA-256 and
            downloaded where they are missing;
            ``"mini"`` for the small embedded sets (of CIFAR-10: ten photographs cut into patches,
            not comparable with the real one). Left out: ``FLODL_DATA_SOURCE``, else ``"real"``.
        root: Cache folder; left out: ``FLODL_DATA_PATH``, else the user's cache folder.
        offline: ``True`` never opens a connection; left out: ``FLODL_OFFLINE``.
        options: ``normalize`` of the image sets; ``seq_len`` (required), ``stride`` and
            ``max_chars`` (how much of the text is used, from its start) of the text set, whose
            first nine tenths of windows are ``"train"``.

    Raises:
        ConfigError: An unknown name, split, source or option.
        DatasetUnavailableError: Files are missing, and may not or cannot be downloaded; nothing is
            put in their place.
        ChecksumError: A file differs from the published one.
        DatasetFormatError: A file is not in its format.
    """
    if name not in CATALOG:
        raise ConfigError(f"load({name!r}): no such data set; there are {', '.join(CATALOG)}")
    if split not in MEMBERS:
        raise ConfigError(f'split={split!r}: expected "train" or "test"')
    _check_options(name, options)
    files = _files(name, source, root, offline)
    if name == "mnist":
        return _mnist(files, split, **options)
    if name == "cifar10":
        return _cifar10(files, split, **options)
    return _shakespeare(files, split, **options)


def _check_options(name: DatasetName, options: dict[str, Any]) -> None:
    legal = {"seq_len", "stride", "max_chars"} if name == "shakespeare" else {"normalize"}
    unknown = sorted(set(options) - legal)
    if unknown:
        raise ConfigError(
            f"load({name!r}) has no option {unknown[0]!r}; it has {', '.join(sorted(legal))}"
        )
    if name == "shakespeare" and "seq_len" not in options:
        raise ConfigError("load('shakespeare') needs seq_len, the characters in a window")


def _files(
    name: DatasetName, source: DataSource | None, root: StrPath | None, offline: bool | None
) -> Files:
    chosen = source or DATA_SOURCE_VARIABLE.get() or "real"
    asked = "source" if source else DATA_SOURCE_VARIABLE.name
    if chosen not in {"real", "mini"}:
        raise ConfigError(f'{asked}={chosen!r}: expected "real" or "mini"')
    if chosen == "real":
        return CachedFiles(name, root, offline=offline)
    if source == "mini" and root is not None:
        raise ConfigError(f'root={os.fspath(root)!r} with source="mini": mini sets have no folder')
    if source is None:
        warn_once(
            logger, "%s=mini: the small embedded data sets are used", DATA_SOURCE_VARIABLE.name
        )
    return EmbeddedFiles(name)


def _mnist(files: Files, split: Split, normalize: Normalize = "unit") -> Mnist:
    stem = "train" if split == "train" else "t10k"
    images, labels = files.read(f"{stem}-images-idx3-ubyte.gz", f"{stem}-labels-idx1-ubyte.gz")
    return Mnist.parse(images, labels, normalize=normalize)


def _cifar10(files: Files, split: Split, normalize: Normalize = "unit") -> Cifar10:
    if isinstance(files, EmbeddedFiles):
        names, batch = files.read("batches.meta.txt", f"{MEMBERS[split][0]}.gz")
        classes = names.decode("ascii").split()
        return Cifar10.parse(
            [batch], normalize=normalize, records_per_file=None, class_names=classes
        )
    if files.has(*MEMBERS[split]):
        # the authors publish a checksum of the archive only: sizes and labels are checked here
        batches = [files.folder / name for name in MEMBERS[split]]
        return Cifar10.parse(batches, normalize=normalize)
    (archive,) = files.read(CATALOG["cifar10"][0].name)
    return Cifar10.from_archive(archive, split, normalize=normalize)


def _shakespeare(
    files: Files,
    split: Split,
    seq_len: int,
    stride: int | None = None,
    max_chars: int | None = None,
) -> Shakespeare:
    (raw,) = files.read("input.txt")
    text = raw.decode("utf-8")
    if max_chars is not None:
        text = text[: whole_number("max_chars", max_chars, least=1)]
    train, test = Shakespeare.parse(text, seq_len, stride).split(TRAIN_FRACTION)
    return train if split == "train" else test
