import io
import json

import pytest
import torch

from ddp_bench.speed.worker import serve


def converse(*messages):
    answers = io.StringIO()
    serve(io.StringIO("".join(json.dumps(message) + "\n" for message in messages)), answers)
    return [json.loads(line) for line in answers.getvalue().splitlines()]


@pytest.fixture(autouse=True)
def _settings_put_back():
    """Put back what the worker sets for its whole process."""
    autotune, threads = torch.backends.cudnn.benchmark, torch.get_num_threads()
    yield
    torch.backends.cudnn.benchmark = autotune
    torch.set_num_threads(threads)


TASK = {"model": "mlp", "arm": "torch-eager"}


def test_worker_tells_its_first_epoch_then_each_request_then_its_facts():
    request = {"policy": "epoch", "epochs": 2, "reset_memory": True}
    ready, answer, facts = converse(TASK, request, {"end": True})
    assert len(ready["ready"]["losses"]) == 10  # an epoch of small dimensions
    assert ready["ready"]["settings"]["threads"] == 1
    assert [epoch["losses"] for epoch in answer["epochs"]] == [[], []]
    assert answer["memory"]["rss_mb"] > 0
    assert answer["memory"]["vram_mb"] is None
    assert facts["facts"]["param_count"] == 1_054_976


def test_parent_that_has_gone_ends_the_worker():
    assert [list(answer) for answer in converse(TASK)] == [["ready"], ["facts"]]


@pytest.mark.parametrize(
    ("task", "says"),
    [
        ({"model": "resnet", "arm": "torch-eager"}, "UsageError: model 'resnet'"),
        ({"model": "mlp", "arm": "torch-eager", "device": "meta"}, "Error"),
    ],
)
def test_failure_is_answered_with_its_reason(task, says):
    assert says in converse(task)[-1]["error"]
