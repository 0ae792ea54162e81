from ddp_bench.listing import list_document, list_text
from ddp_bench.modes import MODES
from ddp_bench.registry import BUILT_IN

MODELS = {definition.name: definition for definition in BUILT_IN}


def test_every_model_and_mode_has_one_line():
    text = list_text(MODELS)
    for name in [*MODELS, *(mode.name for mode in MODES)]:
        assert sum(line.split()[:1] == [name] for line in text.splitlines()) == 1, name


def test_modes_that_cannot_run_stand_under_the_reason():
    can, cannot = list_text(MODELS).split("modes not available in this version\n")
    assert "solo-N" in can
    assert "nccl-sync" in cannot
    assert "nccl-sync" not in can


def test_model_line_shows_the_mini_set_up():
    assert "6 epochs to accuracy >= 0.86\n" in list_text(MODELS)
    assert "5 epochs to mse <= 0.008\n" in list_text(MODELS)


def test_list_fits_a_terminal():
    assert max(map(len, list_text(MODELS).splitlines())) <= 80


def test_document_holds_what_the_text_says():
    document = list_document(MODELS)
    assert [model["name"] for model in document["models"]] == list(MODELS)
    assert document["models"][0]["mini"] == {
        "data": "mnist", "epochs": 6, "batch_size": 64, "floor": 0.86,
    }  # fmt: skip
    assert {mode["name"]: mode["available"] for mode in document["modes"]}["solo-N"] is True
