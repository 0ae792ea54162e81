import pytest

from ddp_bench.data.source import DataSource
from ddp_bench.definition import DataSpec
from flodl import DataError

MNIST = DataSpec(name="mnist")
TEXT = DataSpec(name="shakespeare", seq_len=64, characters=65_536)


@pytest.fixture(scope="module")
def mini():
    return DataSource("mini")


def test_mnist_comes_in_two_parts_with_their_facts(mini):
    data = mini.load(MNIST)
    assert (data.facts.n_train, data.facts.n_test) == (len(data.train), len(data.test))
    assert (data.facts.n_train, data.facts.n_test, data.facts.vocabulary) == (4000, 1000, None)
    assert data.train.names == ("image", "label")


def test_text_is_cut_to_the_set_ups_length_and_split_nine_to_one(mini):
    data = mini.load(TEXT)
    windows = 65_535 // 64
    assert (data.facts.n_train, data.facts.n_test) == (
        windows * 9 // 10,
        windows - windows * 9 // 10,
    )
    assert data.train.tensors[0].shape[1] == 64
    assert (
        max(int(part.tensors[0].max()) for part in (data.train, data.test)) < data.facts.vocabulary
    )


def test_same_data_is_loaded_once(mini):
    assert mini.load(MNIST) is mini.load(DataSpec(name="mnist"))


def test_digest_belongs_to_the_content(mini):
    other = DataSpec(name="shakespeare", seq_len=64, characters=65_000)
    assert mini.load(TEXT).facts.sha256 == DataSource("mini").load(TEXT).facts.sha256
    assert len({mini.load(spec).facts.sha256 for spec in (MNIST, TEXT, other)}) == 3


def test_real_data_that_is_not_there_is_an_error_not_a_download(tmp_path):
    with pytest.raises(DataError, match="train-images-idx3-ubyte.gz"):
        DataSource("real", tmp_path).load(MNIST)
