import dataclasses

from flodl.metrics import EpochMetrics

# distributed spec, section 16
NAMES = """
    anchor avg_loss batches_processed device_indices divergence epoch epoch_ms eval generation
    joined lost member_ids per_rank_batch_share per_rank_compute_only_ms per_rank_data_starve_ms
    per_rank_loss per_rank_samples per_rank_scalars per_rank_throughput per_rank_time_ms phase
    rank_hosts samples_processed scalars windows world_size
""".split()


def metrics(**fields):
    given = {"avg_loss": 1.0, "epoch_ms": 2.0, "batches_processed": 3, "samples_processed": 4}
    return EpochMetrics(epoch=0, lr=0.1, **given, **fields)


def test_an_epoch_has_every_field_of_a_run_over_many_ranks():
    assert set(NAMES) <= {field.name for field in dataclasses.fields(EpochMetrics)}


def test_scalars_of_the_ranks_go_by_both_names():
    assert metrics(per_rank_scalars=[{"a": 1.0}, {}]).per_rank == [{"a": 1.0}, {}]


def test_a_run_on_one_device_leaves_out_what_only_many_ranks_have():
    alone = metrics()
    assert (alone.world_size, alone.lost, alone.anchor, alone.divergence) == (1, [], None, None)
