"""Built-in data sets: MNIST, CIFAR-10 and Shakespeare, the published files or small real ones."""

from flodl.data.datasets.cache import ensure as ensure
from flodl.data.datasets.cifar10 import Cifar10 as Cifar10
from flodl.data.datasets.cifar10 import write_cifar10 as write_cifar10
from flodl.data.datasets.load import load as load
from flodl.data.datasets.mnist import Mnist as Mnist
from flodl.data.datasets.mnist import write_idx as write_idx
from flodl.data.datasets.shakespeare import Shakespeare as Shakespeare
from flodl.data.datasets.synthetic import Synthetic as Synthetic
from flodl.data.datasets.synthetic import copy_task as copy_task
from flodl.data.datasets.synthetic import gaussian_blobs as gaussian_blobs
from flodl.data.datasets.synthetic import linear_mapping as linear_mapping
from flodl.data.datasets.synthetic import teacher_mlp as teacher_mlp

__all__ = [
    "Cifar10",
    "Mnist",
    "Shakespeare",
    "Synthetic",
    "copy_task",
    "ensure",
    "gaussian_blobs",
    "linear_mapping",
    "load",
    "teacher_mlp",
    "write_cifar10",
    "write_idx",
]
