"""Built-in data sets: MNIST, CIFAR-10 and Shakespeare, the published files or small real ones."""

from flodl.data.datasets.cifar10 import Cifar10 as Cifar10
from flodl.data.datasets.cifar10 import write_cifar10 as write_cifar10
from flodl.data.datasets.load import load as load
from flodl.data.datasets.mnist import Mnist as Mnist
from flodl.data.datasets.mnist import write_idx as write_idx
from flodl.data.datasets.shakespeare import Shakespeare as Shakespeare

__all__ = ["Cifar10", "Mnist", "Shakespeare", "load", "write_cifar10", "write_idx"]
