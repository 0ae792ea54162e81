"""Data: sets of samples, orders to visit them in, loaders that turn them into batches."""

from flodl.data.adapter import DataSetAdapter as DataSetAdapter
from flodl.data.batch import Batch as Batch
from flodl.data.builder import DataLoaderBuilder as DataLoaderBuilder
from flodl.data.compose import Concat as Concat
from flodl.data.compose import MapDataSet as MapDataSet
from flodl.data.compose import Repeat as Repeat
from flodl.data.compose import Subset as Subset
from flodl.data.compose import split as split
from flodl.data.config import LoaderConfig as LoaderConfig
from flodl.data.dataset import BatchDataSet as BatchDataSet
from flodl.data.dataset import DataSet as DataSet
from flodl.data.dataset import InMemoryDataSet as InMemoryDataSet
from flodl.data.dataset import TensorDataSet as TensorDataSet
from flodl.data.epoch import EpochIterator as EpochIterator
from flodl.data.loader import DataLoader as DataLoader
from flodl.data.sampler import BlockShuffleSampler as BlockShuffleSampler
from flodl.data.sampler import RandomSampler as RandomSampler
from flodl.data.sampler import Sampler as Sampler
from flodl.data.sampler import SequentialSampler as SequentialSampler
from flodl.data.sampler import WeightedSampler as WeightedSampler

__all__ = [
    "Batch",
    "BatchDataSet",
    "BlockShuffleSampler",
    "Concat",
    "DataLoader",
    "DataLoaderBuilder",
    "DataSet",
    "DataSetAdapter",
    "EpochIterator",
    "InMemoryDataSet",
    "LoaderConfig",
    "MapDataSet",
    "RandomSampler",
    "Repeat",
    "Sampler",
    "SequentialSampler",
    "Subset",
    "TensorDataSet",
    "WeightedSampler",
    "split",
]
