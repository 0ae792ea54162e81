import io

import pytest
import torch

from flodl import optim
from flodl.checkpoint import checkpoint_info
from flodl.checkpoint.optim import (
    Stateful,
    load_state,
    load_state_file,
    save_state,
    save_state_file,
    state_document,
)
from flodl.core.errors import CheckpointError
from flodl.nn import (
    CosineScheduler,
    GradScaler,
    PlateauScheduler,
    SequentialScheduler,
    StepDecay,
    WarmupScheduler,
)

SEVEN = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "RAdam", "NAdam")


@pytest.mark.parametrize("suffix", [".optim", ".optim.gz"])
@pytest.mark.parametrize("steps", [0, 3], ids=["fresh", "trained"])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kind", SEVEN)
def test_a_resumed_run_equals_the_uninterrupted_one(
    kind, groups, steps, suffix, run, equal, tmp_path
):
    first = run(kind, groups=groups).train(steps)
    path = tmp_path / f"state{suffix}"
    save_state_file(first.optimizer, path)
    second = run(kind, groups=groups, seed=9, lr=7.0).train(1).copy_weights(first)
    report = load_state_file(second.optimizer, path)
    assert report.is_complete
    assert set(report.loaded) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert equal(second.state(), first.state())
    assert [g.lr for g in second.optimizer.groups] == [g.lr for g in first.optimizer.groups]
    first.train(3)
    second.train(3)
    assert equal(second.weights(), first.weights())
    assert equal(second.state(), first.state())


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_equal_states_give_equal_bytes(suffix, run, tmp_path):
    contents = []
    for index in range(2):
        path = tmp_path / f"{index}{suffix}"
        save_state_file(run("Adam", groups=2).train(2).optimizer, path)
        contents.append(path.read_bytes())
    assert contents[0] == contents[1]
    assert contents[0][:2] == (b"\x1f\x8b" if suffix else contents[0][:2])


def test_the_file_is_a_container_of_its_kind(small):
    info = checkpoint_info(small)
    assert (info.kind, info.hash) == ("optimizer", "")
    assert ((torch.float32, (4, 3)) in info.tensors.values()) is True


def test_streams_work_as_files_do(run, equal):
    first = run("Adam").train(2)
    stream = io.BytesIO()
    save_state(first.optimizer, stream)
    stream.seek(0)
    second = run("Adam", seed=4)
    load_state(second.optimizer, stream)
    assert equal(second.state(), first.state())


def test_matching_is_by_name_when_both_have_names(run, small, equal):
    trained = run("Adam").train(2)
    other = run("Adam", groups=2)
    pairs = list(other.model.named_parameters())[::-1]
    optimizer = optim.Adam(pairs, lr=0.5)
    load_state_file(optimizer, small)
    for name, parameter in pairs:
        source = dict(trained.model.named_parameters())[name]
        assert equal(dict(optimizer.state[parameter]), dict(trained.optimizer.state[source])), name


def test_matching_is_by_position_when_one_side_has_no_names(run, small, equal):
    trained = run("Adam").train(2)
    bare = run("Adam", named=False)
    bare.optimizer = optim.Adam(list(bare.model.parameters()))
    report = load_state_file(bare.optimizer, small)
    assert report.loaded == ("0", "1", "2", "3")
    assert equal(bare.state(), trained.state())


def test_the_capturable_adagrad_and_the_plain_one_share_their_files(run, equal, tmp_path):
    first = run("Adagrad").train(3)
    save_state_file(first.optimizer, tmp_path / "a")
    second = run("CapturableAdagrad").copy_weights(first)
    load_state_file(second.optimizer, tmp_path / "a")
    third = run("Adagrad").copy_weights(first)
    save_state_file(second.optimizer, tmp_path / "b")
    load_state_file(third.optimizer, tmp_path / "b")
    assert equal(third.state(), first.state())


def test_plain_torch_optimizers_share_the_files_of_ours(run, small, equal):
    trained = run("Adam").train(2)
    plain = torch.optim.Adam(run("Adam").model.named_parameters())
    load_state_file(plain, small)
    states = [dict(plain.state[p]) for p in plain.param_groups[0]["params"]]
    assert equal(states, trained.state())


def test_loading_writes_into_tensors_that_are_there(run, small):
    other = run("Adam", seed=3).train(1)
    weight = other.model[0].weight
    moment = other.optimizer.state[weight]["exp_avg"]
    rate = torch.tensor(7.0)
    other.optimizer.param_groups[0]["lr"] = rate
    load_state_file(other.optimizer, small)
    assert other.optimizer.state[weight]["exp_avg"] is moment
    assert other.optimizer.param_groups[0]["lr"] is rate
    assert rate == torch.tensor(0.1)


def test_a_tensor_rate_is_saved_as_a_number(run, tmp_path):
    first = run("Adam")
    first.optimizer.param_groups[0]["lr"] = torch.tensor(0.25)
    save_state_file(first.optimizer, tmp_path / "a")
    second = run("Adam")
    load_state_file(second.optimizer, tmp_path / "a")
    assert second.optimizer.param_groups[0]["lr"] == 0.25
    assert isinstance(second.optimizer.param_groups[0]["lr"], float)


def test_a_fresh_file_clears_the_state_of_an_optimizer_that_was_used(run, tmp_path):
    save_state_file(run("SGD").optimizer, tmp_path / "fresh")
    used = run("SGD").train(2)
    load_state_file(used.optimizer, tmp_path / "fresh")
    assert not used.optimizer.state


def test_the_implementation_is_not_taken_over(run, tmp_path):
    first = run("Adam")
    first.optimizer.param_groups[0].update(foreach=True, capturable=True)
    save_state_file(first.optimizer, tmp_path / "a")
    second = run("Adam")
    load_state_file(second.optimizer, tmp_path / "a")
    assert second.optimizer.param_groups[0]["foreach"] is None
    assert second.optimizer.param_groups[0]["capturable"] is False


def test_dtypes_stay_as_saved_unless_asked_to_follow_the_parameters(run, small):
    other = run("Adam")
    other.model.double()
    assert load_state_file(other.optimizer, small).cast == ()
    assert other.optimizer.state[other.model[0].weight]["exp_avg"].dtype == torch.float32
    report = load_state_file(other.optimizer, small, cast=True)
    assert set(report.cast) == set(report.loaded)
    state = other.optimizer.state[other.model[0].weight]
    assert (state["exp_avg"].dtype, state["step"].dtype) == (torch.float64, torch.float32)


def test_what_fits_is_loaded_without_strict(run, small, equal):
    trained = run("Adam").train(2)
    other = run("Adam", seed=5).train(1)
    pairs = [("0.weight", other.model[0].weight), ("new", other.model[2].bias)]
    optimizer = optim.Adam(pairs)
    report = load_state_file(optimizer, small, strict=False)
    assert report.loaded == ("0.weight",)
    assert report.missing == ("new",)
    assert set(report.skipped) == {"0.bias", "2.weight", "2.bias"}
    assert equal(
        dict(optimizer.state[other.model[0].weight]),
        dict(trained.optimizer.state[trained.model[0].weight]),
    )


@pytest.mark.parametrize("kinds", [("Adam", "AdamW"), ("AdamW", "Adam")], ids="-".join)
def test_adam_and_adamw_exchange_states_without_strict(kinds, run, equal, tmp_path):
    first = run(kinds[0]).train(2)
    save_state_file(first.optimizer, tmp_path / "a")
    second = run(kinds[1])
    load_state_file(second.optimizer, tmp_path / "a", strict=False)
    assert equal(second.state(), first.state())
    decoupled = second.optimizer.param_groups[0]["decoupled_weight_decay"]
    assert decoupled == (kinds[1] == "AdamW")


def test_a_scaler_goes_on_where_it_was(tmp_path):
    first = GradScaler(8.0, 3.0, 0.25, 7, device="cpu")
    first.scale(torch.ones(1))
    save_state_file(first, tmp_path / "scaler.optim")
    second = GradScaler(device="cpu")
    assert isinstance(second, Stateful)
    load_state_file(second, tmp_path / "scaler.optim")
    assert second.state_dict() == first.state_dict()


@pytest.mark.parametrize(
    "make",
    [
        lambda: StepDecay(0.1, 2, 0.5),
        lambda: WarmupScheduler(PlateauScheduler(0.1, 1, 0.5, 0.0), 0.1, 3),
        lambda: SequentialScheduler(
            [(CosineScheduler(0.1, 0.0, 5), 5), (PlateauScheduler(0.1, 1, 0.5, 0.0), 1)]
        ),
        lambda: PlateauScheduler(0.1, 1, 0.5, 0.0),
    ],
    ids=["pure", "warmup", "sequential", "plateau"],
)
def test_schedulers_go_on_where_they_were(make, tmp_path):
    first = make()
    for value in (float("inf"), 2.0, 3.0):
        if first.is_reactive:
            first.observe(value)
    save_state_file(first, tmp_path / "s")
    second = make()
    load_state_file(second, tmp_path / "s")
    assert second.state_dict() == first.state_dict()
    assert second.lr(6) == first.lr(6)


def test_torchs_schedulers_and_scalers_are_accepted(tmp_path):
    def build():
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2)

    optimizer, first = build()
    for _ in range(3):
        optimizer.step()
        first.step()
    save_state_file(first, tmp_path / "s")
    _, second = build()
    load_state_file(second, tmp_path / "s")
    assert second.last_epoch == 3
    save_state_file(torch.amp.GradScaler("cpu"), tmp_path / "g")


class Everything:
    """A state of every kind of value that a file can hold."""

    state_kind = "loader"

    def __init__(self, state=None):
        self.state = state or {}

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def test_every_plain_value_comes_back_as_it_was(tmp_path, equal):
    tensor = torch.arange(3)
    state = {
        "none": None,
        "flag": True,
        "whole": -(2**70),
        "numbers": [0.1, float("inf"), -float("inf"), 1e-320],
        "text": 'Grüße, {"tensor": 1}',
        "pair": (1, (2.5, "x")),
        "map": {"tensor": "no", "map": {}, "float": 1},
        "tensors": [tensor, {"again": torch.zeros(0)}],
    }
    save_state_file(Everything(state), tmp_path / "s")
    other = Everything()
    load_state_file(other, tmp_path / "s")
    assert equal(other.state, state)
    assert isinstance(other.state["pair"], tuple)


def test_not_a_number_comes_back_too(tmp_path):
    save_state_file(Everything({"x": float("nan")}), tmp_path / "s")
    other = Everything()
    load_state_file(other, tmp_path / "s")
    assert other.state["x"] != other.state["x"]


def test_what_cannot_be_stored_is_named_and_nothing_is_written(tmp_path):
    path = tmp_path / "s"
    path.write_bytes(b"old")
    with pytest.raises(CheckpointError, match="state/a/1': it is object"):
        save_state_file(Everything({"a": [1, object()]}), path)
    with pytest.raises(CheckpointError, match="state/a': it is dict"):
        save_state_file(Everything({"a": {1: 2}}), path)
    with pytest.raises(TypeError, match="Linear has no state to save"):
        save_state_file(torch.nn.Linear(1, 1), path)
    assert path.read_bytes() == b"old"


def test_the_folder_must_exist(run, tmp_path):
    with pytest.raises(CheckpointError, match="No such file"):
        save_state_file(run("SGD").optimizer, tmp_path / "missing" / "s.optim")


KILLED = """
import os, sys, torch
from flodl import optim
from flodl.checkpoint import optim as files
from flodl.checkpoint import content
parameter = torch.nn.Parameter(torch.zeros(4))
optimizer = optim.Adam([parameter])
parameter.grad = torch.ones(4)
optimizer.step()
files.save_state_file(optimizer, sys.argv[1])
content.Digest.hexdigest = lambda self: os._exit(9)  # the data is written, the head is not sealed
files.save_state_file(optimizer, sys.argv[1])
"""


def test_a_kill_while_writing_keeps_the_old_file(tmp_path):
    import subprocess
    import sys

    path = tmp_path / "s.optim"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(path)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 9, done.stderr
    parameter = torch.nn.Parameter(torch.zeros(4))
    assert load_state_file(optim.Adam([parameter]), path).is_complete


@pytest.mark.cuda
@pytest.mark.parametrize("kind", SEVEN)
def test_states_move_between_cpu_and_gpu(kind, run, tmp_path):
    first = run(kind).train(2)
    save_state_file(first.optimizer, tmp_path / "s")
    second = run(kind).copy_weights(first)
    second.model.cuda()
    load_state_file(second.optimizer, tmp_path / "s")
    for group in second.optimizer.param_groups:
        for parameter in group["params"]:
            for key, value in second.optimizer.state[parameter].items():
                if key not in ("step", "mu_product"):
                    assert value.device.type == "cuda"
    x = torch.randn(4, 3)
    for member, given in ((first, x), (second, x.cuda())):
        member.optimizer.zero_grad()
        member.model(given).square().mean().backward()
        member.optimizer.step()
    torch.testing.assert_close(
        second.model[0].weight.cpu(), first.model[0].weight, rtol=1e-4, atol=1e-5
    )


def test_a_document_writes_the_file_with_copies_of_its_tensors(tmp_path):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    save_state_file(optimizer, tmp_path / "now.optim")
    state = state_document(optimizer)
    copies = {name: tensor.clone() for name, tensor in state.tensors.items()}
    optimizer.step()
    state.write(tmp_path / "later.optim", copies)
    assert (tmp_path / "later.optim").read_bytes() == (tmp_path / "now.optim").read_bytes()
