import pytest

from flodl_cli.config.presets import blocks_of, contradiction, flags, merge, settings


def test_every_setting_becomes_its_flag_in_order():
    blocks = {
        "options": {"model": "mlp", "fast": True, "slow": False, "none": None, "tag": ["a", 2]},
        "training": {
            "seed": 42,
            "epochs": 3,
            "batch_size": 32,
            "lr": 0.001,
            "batches_per_epoch": 10,
        },
        "output": {"dir": "runs", "monitor": 8080, "timeline": True},
        "ddp": {
            "policy": "cadence",
            "backend": "cpu",
            "anchor": "auto",
            "max_anchor": 20,
            "overhead_target": 0.05,
            "divergence_threshold": 0.3,
            "max_batch_diff": 4,
            "max_grad_norm": 1.0,
            "snapshot_timeout": 5,
            "checkpoint_every": 2,
            "progressive": False,
            "speed_hint": {"slow_rank": 1, "ratio": 2.5},
            "partition_ratios": [0.75, 0.25],
            "lr_scale_ratio": 0.5,
            "timeline": True,
        },
    }
    assert " ".join(flags(blocks)) == (
        "--policy cadence --backend cpu --anchor auto --max-anchor 20 --overhead-target 0.05 "
        "--divergence-threshold 0.3 --max-batch-diff 4 --max-grad-norm 1.0 --snapshot-timeout 5 "
        "--checkpoint-every 2 --progressive false --speed-hint 1:2.5 "
        "--partition-ratios 0.75,0.25 --lr-scale-ratio 0.5 --timeline "
        "--epochs 3 --batch-size 32 --lr 0.001 --seed 42 --batches 10 "
        "--output runs --monitor 8080 "
        "--model mlp --fast --tag a --tag 2"
    )


def test_timeline_is_passed_once_wherever_it_is_set():
    assert flags({"ddp": {"timeline": True}, "output": {"timeline": True}}) == ("--timeline",)
    assert flags({"output": {"timeline": True}}) == ("--timeline",)
    assert flags({"output": {"timeline": False}}) == ()


def test_unset_and_null_pass_nothing():
    assert flags({}) == ()
    assert flags({"ddp": None, "training": {"epochs": None}}) == ()


def test_zero_is_passed():
    assert flags({"training": {"seed": 0}}) == ("--seed", "0")


def test_merge_keeps_the_place_of_the_first_layer():
    base = {"training": {"epochs": 1, "lr": 0.1}, "options": {"a": [1, 2]}}
    over = {"options": {"a": [3]}, "ddp": {"mode": "solo-1"}, "training": {"lr": None}}
    merged = merge(base, over)
    assert merged == {
        "training": {"epochs": 1, "lr": None},
        "options": {"a": [3]},
        "ddp": {"mode": "solo-1"},
    }
    assert list(merged) == ["training", "options", "ddp"]
    assert base["training"] == {"epochs": 1, "lr": 0.1}


def test_null_block_takes_back_the_block_below():
    assert flags(merge({"training": {"epochs": 1}}, {"training": None})) == ()


def test_blocks_are_picked_from_the_other_keys():
    data = {"entry": "x", "training": {"epochs": 1}, "options": None}
    assert blocks_of(data) == {"training": {"epochs": 1}, "options": None}


def test_settings_are_what_people_read():
    blocks = {"training": {"epochs": 1, "lr": None}, "ddp": {"partition_ratios": [1, 2]}}
    assert settings(blocks) == {"training.epochs": "1", "ddp.partition_ratios": "1,2"}


@pytest.mark.parametrize(
    ("ddp", "part"),
    [
        ({"mode": "cpu-sync", "policy": "sync"}, "already says policy"),
        ({"mode": "cpu-sync", "policy": "sync", "backend": "cpu"}, "policy and backend"),
        ({"policy": "async", "backend": "nccl"}, "use cpu-async or nccl-cadence"),
    ],
)
def test_settings_that_contradict_each_other_are_found(ddp, part):
    found = contradiction({"ddp": ddp})
    assert found is not None
    assert part in found


@pytest.mark.parametrize("ddp", [None, {}, {"mode": "cpu-sync", "policy": None}])
def test_settings_that_agree_pass(ddp):
    assert contradiction({"ddp": ddp}) is None
