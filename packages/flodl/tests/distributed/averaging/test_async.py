"""Averages made on a thread of their own while training goes on."""

import threading

import pytest
import torch
from torch import nn

from flodl.core.errors import ConfigError
from flodl.distributed.averaging.outer import SlowMo
from flodl.distributed.averaging.parameters import ParameterPlane
from flodl.distributed.averaging.plan import PlaneConfig
from flodl.distributed.averaging.plane import Progress
from flodl.distributed.collective.control_store import ControlStore
from flodl.distributed.collective.errors import CollectiveError, Interrupted, StoreClosed
from flodl.distributed.collective.formation import Formation, Seat
from flodl.distributed.collective.store import MemoryStore


def scalar(value):
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, value)
    return model


def background(alpha=0.6, **options):
    return PlaneConfig(is_background=True, alpha=alpha, **options)


def solo(model, config):
    plane = ParameterPlane(model, config)
    plane.form(Formation.of_size(1, 0), ControlStore(MemoryStore()))
    return plane


def test_batches_between_snapshot_and_commit_stay_and_count_for_the_next_window(thread_ranks):
    memory = MemoryStore()

    def rank(k):
        model = scalar(float(k))
        plane = ParameterPlane(model, background())
        plane.form(Formation.of_size(2, k), ControlStore(memory))
        places = model.weight.data_ptr()
        history = []
        for window in (1, 2):
            plane.snapshot(window)
            with torch.no_grad():
                model.weight.add_(10.0)  # trained meanwhile
            plane.contribute(window, 0.5)
            assert plane.wait(timeout_s=30) is Progress.DONE
            plane.commit()
            history.append((plane.consensus.tensors()["weight"].item(), model.weight.item()))
        assert places == model.weight.data_ptr()
        plane.close()
        return history

    first, second = thread_ranks(2, rank)
    # consensus of the snapshots 0 and 1; blended by 0.6 into 10 and 11
    assert first[0] == pytest.approx((0.5, 0.4 * 10 + 0.6 * 0.5))
    assert second[0] == pytest.approx((0.5, 0.4 * 11 + 0.6 * 0.5))
    # the ten that were trained meanwhile are in the next snapshot
    mean = (first[0][1] + second[0][1]) / 2
    assert first[1][0] == second[1][0] == pytest.approx(mean)
    assert first[1][1] == pytest.approx(0.4 * (first[0][1] + 10) + 0.6 * mean)


def test_the_golden_blend():
    model = scalar(2.0)
    plane = solo(model, background(0.6))
    plane.snapshot(1)
    nn.init.constant_(model.weight, 1.0)
    plane.contribute(1, 1.0)
    assert plane.wait(timeout_s=30) is Progress.DONE
    plane.commit()
    assert model.weight.item() == pytest.approx(1.6)
    plane.close()


def test_an_elastic_center_is_blended_towards_where_it_was():
    model = scalar(1.0)
    plane = solo(model, background(0.5, center="elastic"))
    seen = []
    for window, value in enumerate((3.0, 5.0), 1):
        nn.init.constant_(model.weight, value)
        plane.snapshot(window)
        plane.contribute(window, 1.0)
        assert plane.wait(timeout_s=30) is Progress.DONE
        plane.commit()
        seen.append(model.weight.item())
    plane.close()
    # center: 1, then (1+3)/2 = 2, then (2+5)/2; ranks blend towards 1, then 2
    assert seen == pytest.approx([(3 + 1) / 2, (5 + 2) / 2])


def test_the_blend_goes_towards_the_outer_result():
    model = scalar(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config = background(0.5, outer=SlowMo(alpha=2.0))
    plane = ParameterPlane(model, config, optimizer=optimizer)
    plane.form(Formation.of_size(1, 0), ControlStore(MemoryStore()))
    nn.init.constant_(model.weight, 0.8)
    plane.snapshot(1)
    plane.contribute(1, 1.0)
    assert plane.wait(timeout_s=30) is Progress.DONE
    plane.commit()
    plane.close()
    # twice the way from the 1 before to the 0.8 of the ranks, that is 0.6
    assert model.weight.item() == pytest.approx((0.8 + 0.6) / 2)


def test_an_average_under_way_is_left_alone_and_abandoned_in_one_call(thread_ranks):
    memory = MemoryStore()
    is_left = threading.Event()

    def rank(k):
        model = scalar(float(k))
        plane = ParameterPlane(model, background())
        plane.form(Formation.of_size(2, k), ControlStore(memory))
        plane.snapshot(1)
        if k == 0:
            plane.contribute(1, 0.5)
            with pytest.raises(CollectiveError, match="under way"):
                plane.snapshot(2)
            with pytest.raises(CollectiveError, match="another is pending"):
                plane.contribute(1, 0.5)
            assert plane.poll() is Progress.PENDING
            assert plane.abandon() == 0
            assert plane.poll() is Progress.IDLE
            with pytest.raises(CollectiveError, match="no generation"):
                plane.contribute(1, 0.5)
            is_left.set()
        assert is_left.wait(30)
        plane.close()
        return model.weight.item()

    assert thread_ranks(2, rank) == [0.0, 1.0]


def test_a_formation_that_is_interrupted_leaves_the_generation_before():
    plane = solo(scalar(1.0), PlaneConfig())
    store = ControlStore(MemoryStore())
    with pytest.raises(Interrupted):
        plane.form(Formation.of_size(2, 0, generation=2), store, interrupted=lambda: True)
    plane.snapshot(1)
    with pytest.raises(CollectiveError, match="no generation"):
        plane.contribute(1, 1.0)
    with pytest.raises(StoreClosed):
        store.wait(["key"])
    plane.form(Formation.of_size(1, 0, generation=3), ControlStore(MemoryStore()))
    plane.contribute(1, 1.0)
    assert plane.poll() is Progress.DONE
    plane.close()


def test_what_has_arrived_when_a_generation_ends_is_completed_and_can_be_committed(thread_ranks):
    memory = MemoryStore()
    both = threading.Barrier(2)

    def rank(k):
        model = scalar(float(k))
        plane = ParameterPlane(model, PlaneConfig())  # no thread: only calls move it
        seats = tuple(Seat(uid=f"u{r}", rank=r, host="h") for r in range(2))
        plane.form(
            Formation(run="r", nonce="n", generation=1, rank=k, seats=seats, topology="two_level"),
            ControlStore(memory),
        )
        plane.snapshot(1)
        plane.contribute(1, 0.5)
        if k == 0:
            assert plane.wait(timeout_s=30) is Progress.DONE
        both.wait(30)  # now the leader has published, and the other has not looked
        assert plane.has_result == (k == 0)
        before = plane.abandon(), plane.has_result
        plane.commit()
        with pytest.raises(CollectiveError, match="without a completed average"):
            plane.commit()
        plane.close()
        return before, plane.last_completed, model.weight.item()

    assert thread_ranks(2, rank) == [((1, True), 1, 0.5)] * 2


def test_a_result_that_is_not_committed_leaves_the_consensus_as_it_was():
    model = scalar(1.0)
    plane = solo(model, PlaneConfig(outer=SlowMo(lr_aware=False)))
    state = plane.consensus.state()
    nn.init.constant_(model.weight, 3.0)
    plane.snapshot(1)
    plane.contribute(1, 1.0)
    assert plane.poll() is Progress.DONE
    assert (plane.abandon(), plane.last_completed) == (1, 0)
    assert (plane.consensus.window, plane.consensus.is_shared) == (0, False)
    assert plane.consensus.tensors()["weight"].item() == 1.0
    assert plane.consensus.outer_state() == state.part("outer/")
    plane.form(Formation.of_size(1, 0, generation=2), ControlStore(MemoryStore()))
    plane.snapshot(1)
    plane.contribute(1, 1.0)
    assert plane.poll() is Progress.DONE
    plane.commit()
    assert plane.last_completed == 1
    assert model.weight.item() == 3.0
    plane.close()


def test_swapped_shows_the_consensus_and_brings_back_every_bit():
    model = nn.BatchNorm1d(2).to(torch.float64)
    with torch.no_grad():
        model.weight.fill_(1 / 3)  # float32 has not all of its bits
    plane = solo(model, background())
    plane.snapshot(1)
    plane.contribute(1, 1.0)
    assert plane.wait(timeout_s=30) is Progress.DONE
    with torch.no_grad():
        model.weight.add_(1e-12)
        model.num_batches_tracked.add_(5)
    own = {name: value.clone() for name, value in model.state_dict().items()}
    with plane.consensus.swapped():
        assert model.weight[0].item() == torch.tensor(1 / 3, dtype=torch.float32).item()
        assert model.num_batches_tracked == 0
    assert all(torch.equal(value, own[name]) for name, value in model.state_dict().items())
    plane.close()


def test_a_consensus_goes_on_from_a_saved_one():
    def windows(plane, model, values, first):
        for window, value in enumerate(values, first):
            nn.init.constant_(model.weight, value)
            plane.snapshot(window)
            plane.contribute(window, 1.0)
            assert plane.wait(timeout_s=30) is Progress.DONE
            plane.commit()

    config = PlaneConfig(outer=SlowMo(lr_aware=False), alpha=0.5, center="elastic")
    model, other = scalar(1.0), scalar(7.0)
    plane, resumed = solo(model, config), solo(other, config)
    windows(plane, model, [0.9, 0.7], 1)
    resumed.consensus.load(plane.consensus.state())
    assert resumed.consensus.window == 2
    windows(plane, model, [0.5, 0.6], 3)
    windows(resumed, other, [0.5, 0.6], 3)
    assert model.weight.item() == other.weight.item()
    assert torch.equal(plane.consensus.flat, resumed.consensus.flat)
    with pytest.raises(ConfigError, match="another model"):
        solo(nn.Linear(2, 1), config).consensus.load(plane.consensus.state())
    plane.close()
    resumed.close()


def test_averaged_inner_state_follows_an_optimizer_that_was_loaded():
    model = scalar(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    plane = ParameterPlane(model, PlaneConfig(inner_state="average"), optimizer=optimizer)
    plane.form(Formation.of_size(1, 0), ControlStore(MemoryStore()))
    saved = optimizer.state_dict()
    saved["state"] = {0: {"momentum_buffer": torch.full((1, 1), 4.0)}}
    optimizer.load_state_dict(saved)
    plane.snapshot(1)
    plane.contribute(1, 1.0)
    assert plane.poll() is Progress.DONE
    optimizer.state[model.weight]["momentum_buffer"].zero_()
    plane.commit()
    assert optimizer.state[model.weight]["momentum_buffer"].item() == 4.0
    plane.close()


def test_inner_state_is_reset_where_that_is_asked_for():
    model = scalar(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    plane = ParameterPlane(model, PlaneConfig(inner_state="reset"), optimizer=optimizer)
    plane.form(Formation.of_size(1, 0), ControlStore(MemoryStore()))
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    plane.snapshot(1)
    plane.contribute(1, 1.0)
    assert plane.poll() is Progress.DONE
    assert optimizer.state[model.weight]["momentum_buffer"].item() == 1.0
    plane.commit()
    assert optimizer.state[model.weight]["momentum_buffer"].item() == 0.0
    with pytest.raises(ConfigError, match="without an optimizer"):
        ParameterPlane(model, PlaneConfig(inner_state="reset"))
    plane.close()
