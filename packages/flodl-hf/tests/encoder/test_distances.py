import pytest
import torch

from flodl_hf import DebertaV2Config, DebertaV2Model
from flodl_hf.encoder.distances import Distances, bucket


@pytest.mark.parametrize(
    ("distance", "expected"),
    [
        (0, 0),
        (1, 1),
        (128, 128),
        (129, 129),
        (200, 169),
        (511, 255),
        (512, 256),
        (600, 270),
        (700, 284),
    ],
)
def test_buckets_are_those_of_the_reference(distance, expected):
    both = bucket(torch.tensor([distance, -distance]), 256, 512)
    assert both.tolist() == [expected, -expected]


@pytest.mark.parametrize("length", [1, 2, 7, 64, 65, 200])
def test_rows_are_counted_from_the_first_in_use(length):
    distances = Distances(span=16, buckets=16, reach=32, length=64)
    first, end = distances.rows(length)
    index = distances(torch.zeros(2, length, 4))
    at = torch.arange(length)
    plain = (bucket(at[:, None] - at[None, :], 16, 32) + 16).clamp(0, 31)
    assert torch.equal(index + first, plain)
    assert index.min() == 0
    assert index.max() == end - first - 1


@pytest.mark.parametrize(("buckets", "reach"), [(32, 16), (32, 3), (8, 5), (8, 64)])
def test_edges_hold_where_far_buckets_shrink_again(buckets, reach):
    distances = Distances(span=buckets, buckets=buckets, reach=reach, length=8)
    for length in (1, 5, 20, 40):
        at = torch.arange(length)
        far = bucket(at[:, None] - at[None, :], buckets, reach)
        plain = (far + buckets).clamp(0, 2 * buckets - 1)
        first, end = distances.rows(length)
        assert (first, end) == (plain.min(), plain.max() + 1)
        assert torch.equal(distances(torch.zeros(1, length, 1)) + first, plain)


def test_without_buckets_every_distance_has_a_row():
    distances = Distances(span=8, buckets=-1, reach=8, length=8)
    index = distances(torch.zeros(1, 20, 4))
    at = torch.arange(20)
    assert torch.equal(index, (at[:, None] - at[None, :] + 8).clamp(0, 15))


def test_a_table_that_a_captured_step_may_read_stays_when_longer_texts_come():
    distances = Distances(span=16, buckets=16, reach=32, length=8)
    device = torch.device("cpu")
    short = distances.table(8, device)
    assert distances.table(9, device) is not short
    assert distances.table(3, device) is short


def test_any_number_of_positions_costs_nothing_before_it_is_used():
    config = DebertaV2Config(
        vocab_size=9,
        hidden_size=4,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=3,
        max_position_embeddings=10**15,
        relative_attention=True,
        position_buckets=8,
        pos_att_type=("c2p",),
        position_biased_input=False,
    )
    model = DebertaV2Model.build(config)
    given = dict.fromkeys(model.input_names) | {"input_ids": torch.ones(1, 5, dtype=torch.long)}
    assert model(**given).shape == (1, 5, 4)
