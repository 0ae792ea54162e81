import torch
from torch import nn

from flodl import FlowBuilder
from flodl.distributed.protocol import Frame, decode, encode
from flodl.records.board import RunBoard
from flodl.trainer.ranks.introduction import MODEL, introduce, show_model


def sent(model):
    """What of an introduction arrives at the other side."""
    told = introduce(model, torch.optim.SGD(model.parameters(), lr=0.25))
    return decode(encode(Frame(run="n", gen=0, seq=1, member="u", message=told))).message


def test_a_graph_is_shown_with_picture_identity_and_counts():
    model = FlowBuilder(nn.Linear(4, 8)).through(nn.Linear(8, 2)).label("small").build()
    board, settings = RunBoard(), {"ranks": 2}
    board.set_metadata({"note": "mine", "model": "my words"})
    message = sent(model)
    assert message.path == MODEL
    show_model(board, settings, message.values)
    facts = board.api_meta()
    assert (facts["label"], facts["hash"]) == ("small", model.structural_hash)
    assert facts["graph"] is True
    assert "<svg" in board.svg
    assert board.tree.run["label"] == "small"
    assert facts["metadata"] == {
        "note": "mine",
        "model": "my words",
        "ranks": 2,
        "optimizer": "SGD, lr 0.25",
        "parameters": {"total": 58, "trainable": 58, "frozen": 0},
    }
    assert settings["model"] == "Graph"


def test_any_other_module_has_its_name_and_counts_and_viewers_look_again():
    board = RunBoard()
    before = board.tree.seq
    show_model(board, {}, sent(nn.Linear(2, 1)).values)
    assert board.metadata["model"] == "Linear"
    assert board.metadata["parameters"]["total"] == 3
    assert board.api_meta()["graph"] is False
    assert board.tree.seq == before + 1


def test_a_model_that_cannot_be_counted_yet_is_not_shown(caplog):
    lazy = nn.LazyLinear(3)
    assert introduce(lazy, torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)) is None
    assert "the model is not shown" in caplog.text
