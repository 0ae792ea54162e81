"""The published files of the built-in data sets: names, sizes, checksums, addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from flodl.data.datasets.cifar10 import MEMBERS

DatasetName: TypeAlias = Literal["mnist", "cifar10", "shakespeare"]

_MNIST_HOSTS = (
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedFile:
    """One file as its authors publish it; ``unpacked`` are the files in it that serve as well."""

    name: str
    size: int
    sha256: str
    urls: tuple[str, ...]
    unpacked: tuple[str, ...] = ()


def _mnist(name: str, size: int, sha256: str) -> PublishedFile:
    urls = tuple(host + name for host in _MNIST_HOSTS)
    return PublishedFile(name=name, size=size, sha256=sha256, urls=urls)


CATALOG: dict[DatasetName, tuple[PublishedFile, ...]] = {
    "mnist": (
        _mnist(
            "train-images-idx3-ubyte.gz",
            9_912_422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        _mnist(
            "train-labels-idx1-ubyte.gz",
            28_881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
        _mnist(
            "t10k-images-idx3-ubyte.gz",
            1_648_877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        _mnist(
            "t10k-labels-idx1-ubyte.gz",
            4_542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
    "cifar10": (
        PublishedFile(
            name="cifar-10-binary.tar.gz",
            size=170_052_171,
            sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            urls=("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
            unpacked=MEMBERS["train"] + MEMBERS["test"],
        ),
    ),
    "shakespeare": (
        PublishedFile(
            name="input.txt",
            size=1_115_394,
            sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
            urls=(
                "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/"
                "tinyshakespeare/input.txt",
            ),
        ),
    ),
}
