"""Data: sets of samples, orders to visit them in, loaders that turn them into batches."""

from flodl.data.adapter import DataSetAdapter as DataSetAdapter
from flodl.data.batch import Batch as Batch
from flodl.data.budget import ResidentBudget as ResidentBudget
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
from flodl.data.epoch_data import EpochFnConfig as EpochFnConfig
from flodl.data.epoch_fn import EpochFnLoader as EpochFnLoader
from flodl.data.huggingface import HfDataSet as HfDataSet
from flodl.data.iterable import IterableConfig as IterableConfig
from flodl.data.leases import LeaseFeed as LeaseFeed
from flodl.data.leases import LeaseProgress as LeaseProgress
from flodl.data.loader import DataLoader as DataLoader
from flodl.data.memmap import MemmapDataSet as MemmapDataSet
from flodl.data.memmap import TokenWindows as TokenWindows
from flodl.data.partition import Lease as Lease
from flodl.data.partition import chunk_sizes as chunk_sizes
from flodl.data.resume import merge_states as merge_states
from flodl.data.sampler import BlockShuffleSampler as BlockShuffleSampler
from flodl.data.sampler import RandomSampler as RandomSampler
from flodl.data.sampler import Sampler as Sampler
from flodl.data.sampler import SequentialSampler as SequentialSampler
from flodl.data.sampler import WeightedSampler as WeightedSampler
from flodl.data.stream import StreamIterator as StreamIterator
from flodl.data.stream import StreamLoader as StreamLoader
from flodl.data.streamstate import StreamConfig as StreamConfig
from flodl.data.tarstream import TarStream as TarStream

__all__ = [
    "Batch",
    "BatchDataSet",
    "BlockShuffleSampler",
    "Concat",
    "DataLoader",
    "DataLoaderBuilder",
    "DataSet",
    "DataSetAdapter",
    "EpochFnConfig",
    "EpochFnLoader",
    "EpochIterator",
    "HfDataSet",
    "InMemoryDataSet",
    "IterableConfig",
    "Lease",
    "LeaseFeed",
    "LeaseProgress",
    "LoaderConfig",
    "MapDataSet",
    "MemmapDataSet",
    "RandomSampler",
    "Repeat",
    "ResidentBudget",
    "Sampler",
    "SequentialSampler",
    "StreamConfig",
    "StreamIterator",
    "StreamLoader",
    "Subset",
    "TarStream",
    "TensorDataSet",
    "TokenWindows",
    "WeightedSampler",
    "chunk_sizes",
    "merge_states",
    "split",
]
