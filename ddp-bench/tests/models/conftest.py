"""What the model tests build their models for."""

import pytest

from ddp_bench.definition import DataFacts


@pytest.fixture
def facts():
    """Return facts of a data set with 65 characters; image models ignore them."""
    return DataFacts(name="test", sha256="", n_train=1, n_test=1, vocabulary=65)
