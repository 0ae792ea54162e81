import datetime
import gc
import random
import threading
import time

import pytest
import torch
from torch import nn

from flodl.engine.inspection import StepInspector, python_calls_watched


def codes(function, device="cpu", **keywords):
    inspector = StepInspector(torch.device(device), **keywords)
    with inspector:
        function()
    return [str(reason.code) for reason in inspector.reasons], inspector


X = torch.arange(6.0).reshape(2, 3)


FINDINGS = {
    "item": (lambda: X.sum().item(), "host_sync"),
    "bool": (lambda: bool(X.sum() > 1), "host_sync"),
    "nonzero": (lambda: X.nonzero(), "dynamic_shape"),  # noqa: PLW0108 - looked up when called
    "mask": (lambda: X[X > 1], "dynamic_shape"),
    "masked_select": (lambda: X.masked_select(X > 1), "dynamic_shape"),
    "unique": (lambda: torch.unique(X), "dynamic_shape"),
    "generator": (lambda: torch.rand(2, generator=torch.Generator()), "rng_generator"),
}


@pytest.mark.parametrize("name", FINDINGS)
def test_what_a_replay_cannot_repeat_is_found_with_its_place(name):
    function, code = FINDINGS[name]
    found, inspector = codes(function)
    assert found == [code]
    assert "test_inspection.py:" in inspector.reasons[0].location


def test_a_plain_step_has_no_findings_and_equal_numbers():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))

    def step():
        model.zero_grad()
        loss = model(X).square().mean()
        loss.backward()
        return [loss.detach().clone(), *[p.grad.clone() for p in model.parameters()]]

    expected = step()
    inspector = StepInspector(torch.device("cpu"))
    with inspector:
        found = step()
    assert not inspector.reasons
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert model[0].weight.untyped_storage().data_ptr() in inspector.read
    assert model[1].num_batches_tracked.untyped_storage().data_ptr() in inspector.written


def test_a_generator_that_is_registered_may_be_used():
    generator = torch.Generator()
    assert codes(lambda: torch.rand(2, generator=generator), generators=[generator])[0] == []


def test_findings_of_the_update_are_marked_as_such():
    inspector = StepInspector(torch.device("cpu"))
    with inspector:
        X.sum().item()
    inspector.in_update = True
    with inspector:
        X.mean().item()
    assert [reason.in_update for reason in inspector.reasons] == [False, True]


def test_pythons_random_numbers_are_found():
    reasons = []
    with python_calls_watched(reasons):
        random.random()
    assert [str(reason.code) for reason in reasons] == ["baked_scalar"]
    assert "test_inspection.py:" in reasons[0].location


def test_clocks_read_by_the_step_are_found_and_those_of_libraries_are_not():
    reasons = []
    with python_calls_watched(reasons):
        threading.Event().wait(0.001)
    assert reasons == []
    with python_calls_watched(reasons):
        time.perf_counter()
        datetime.datetime.now(tz=datetime.UTC)
    assert [str(reason.code) for reason in reasons] == ["baked_scalar"] * 2
    assert "perf_counter" in reasons[0].message


def test_what_a_collection_of_garbage_runs_is_not_of_the_step():
    reasons, collections = [], []

    def observe(phase, info):
        collections.append((phase, time.perf_counter()))

    gc.callbacks.append(observe)
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        with python_calls_watched(reasons):
            collections.clear()
            [[] for _ in range(100)]
            inside = list(collections)
        assert (reasons, inside) == ([], [])
        assert gc.isenabled()
        [[] for _ in range(100)]
        assert collections
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(observe)


def test_a_compiler_at_work_in_the_step_is_not_mistaken_for_it():
    reasons = []

    def backend(graph, inputs):
        return lambda *given: (graph(*given)[0] * random.random(),)

    model = torch.compile(nn.Linear(2, 2), backend="eager", dynamic=False)
    with python_calls_watched(reasons):
        model(X[:, :2])
        assert reasons == []
        torch.compile(nn.Linear(2, 2), backend=backend)(X[:, :2])
    assert [str(reason.code) for reason in reasons] == ["baked_scalar"]
