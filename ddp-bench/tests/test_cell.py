import io
import json
from dataclasses import replace

import pytest
import torch

from ddp_bench.cell import CellPlan, run_cell
from ddp_bench.data.source import DataSource
from ddp_bench.errors import RunFolderError
from ddp_bench.gates import judge_sane
from ddp_bench.hashing import state_hash
from ddp_bench.learning_rate import LearningRate
from ddp_bench.models.logistic import LOGISTIC
from ddp_bench.modes import SoloMode
from ddp_bench.run_folder import ARTIFACTS, RunFolder
from ddp_bench.training_log import parse_log
from flodl import load_checkpoint

CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def data():
    return DataSource("mini").load(LOGISTIC.mini.data)


@pytest.fixture
def make_plan(tmp_path):
    def make(folder="solo-0", **changes):
        made = RunFolder(tmp_path / folder)
        made.check()
        fields = {
            "definition": LOGISTIC,
            "setup": LOGISTIC.mini,
            "mode": SoloMode(index=0),
            "source": "mini",
            "seed": 42,
            "epochs": 1,
            "rate": LearningRate(value=1e-3),
            "device": CPU,
            "folder": made,
        }
        return CellPlan(**{**fields, **changes})

    return make


def run(plan, data):
    return run_cell(plan, data, stream=io.StringIO())


def test_cell_leaves_result_log_and_checkpoint_that_agree(make_plan, data):
    plan = make_plan(epochs=2)
    result = run(plan, data)
    assert sorted(path.name for path in plan.folder.path.iterdir()) == sorted(ARTIFACTS)
    written = json.loads((plan.folder.path / "result.json").read_text())
    assert written == json.loads(json.dumps(result.as_json()))
    log = parse_log((plan.folder.path / "training.log").read_text())
    assert [round(epoch.loss, 6) for epoch in result.epochs] == [e.loss for e in log.epochs]
    assert log.final_eval == pytest.approx(written["final"]["eval"], abs=5e-5)
    assert judge_sane(result).verdict == "PASS"


def test_checkpoint_holds_the_model_that_was_evaluated(make_plan, data):
    plan = make_plan()
    result = run(plan, data)
    model = LOGISTIC.build(CPU, data.facts)
    load_checkpoint(plan.folder.path / "model.fdl", model, strict=True)
    fields = dict(zip(data.test.names, data.test.tensors, strict=True))
    right = model.eval()(fields["image"]).argmax(1) == fields["label"]
    assert float(right.double().mean()) == pytest.approx(result.final.eval)


def test_every_sample_of_full_batches_is_seen_once_in_each_pass(make_plan, data):
    coverage = run(make_plan(epochs=2), data).coverage
    per_pass = data.facts.n_train // 64 * 64
    assert (coverage.expected, coverage.seen, coverage.duplicates) == (2 * per_pass,) * 2 + (0,)


def test_two_runs_of_one_seed_are_equal_bit_for_bit(make_plan, data):
    first, second = (run(make_plan(folder), data) for folder in ("a", "b"))
    assert first.init_hash == second.init_hash
    assert first.loss_curve == second.loss_curve
    assert first.final == second.final
    folder = make_plan().folder.path.parent
    assert (folder / "a/model.fdl").read_bytes() == (folder / "b/model.fdl").read_bytes()


def test_runs_of_different_seeds_differ(make_plan, data):
    first, second = (run(make_plan(f"seed{seed}", seed=seed), data) for seed in (42, 43))
    assert first.init_hash != second.init_hash
    assert first.loss_curve != second.loss_curve


def test_initial_hash_is_that_of_the_model_before_its_first_step(make_plan, data):
    built = []

    def build(device, facts):
        model = LOGISTIC.build(device, facts)
        built.append(state_hash(model))
        return model

    result = run(make_plan(definition=replace(LOGISTIC, build=build)), data)
    assert [result.init_hash] == built


def trained_and_initial(plan, data):
    initial = {}

    def build(device, facts):
        model = LOGISTIC.build(device, facts)
        initial.update({name: value.clone() for name, value in model.state_dict().items()})
        return model

    run(replace(plan, definition=replace(plan.definition, build=build)), data)
    model = LOGISTIC.build(CPU, data.facts)
    load_checkpoint(plan.folder.path / "model.fdl", model, strict=True)
    return model.state_dict(), initial


def test_schedule_gets_the_steps_of_an_epoch_and_sets_the_rate_of_every_step(make_plan, data):
    class Zero:
        def __init__(self, base_lr, steps_per_epoch):
            assert (base_lr, steps_per_epoch) == (1e-3, 4000 // 64)

        def lr(self, step):
            return 0.0

    plan = make_plan(definition=replace(LOGISTIC, schedule=Zero))
    trained, initial = trained_and_initial(plan, data)
    assert all(torch.equal(trained[name], initial[name]) for name in initial)


def test_gradients_are_clipped_element_by_element(make_plan, data):
    definition = replace(LOGISTIC, optimizer=torch.optim.SGD, clip_value=1e-4)
    plan = make_plan(definition=definition, rate=LearningRate(value=1.0))
    trained, initial = trained_and_initial(plan, data)
    moved = max(float((trained[name] - initial[name]).abs().max()) for name in initial)
    assert 0 < moved <= 4000 // 64 * 1.01e-4


def test_floor_is_judged_only_for_the_set_up_it_was_set_for(make_plan):
    assert make_plan(epochs=6).floor == 0.86
    assert make_plan(epochs=5).floor is None
    assert make_plan(epochs=6, rate=LearningRate(value=1e-4, note="smaller")).floor is None


def test_optimizer_that_does_nothing_fails_the_gate(make_plan, data):
    plan = make_plan(epochs=6, rate=LearningRate(value=0.0))
    gate = judge_sane(run(plan, data))
    assert gate.verdict == "FAIL"
    assert any(reason.startswith("floor: accuracy") for reason in gate.failures)


def test_diverged_run_is_a_failed_cell_without_a_checkpoint(make_plan, data):
    plan = make_plan(rate=LearningRate(value=float("inf")))
    result = run(plan, data)
    assert result.status == "failed"
    assert "NaN or infinite" in result.error
    assert judge_sane(result).verdict == "FAIL"
    assert not (plan.folder.path / "model.fdl").exists()
    assert json.loads((plan.folder.path / "result.json").read_text())["status"] == "failed"


def test_exception_of_the_model_makes_a_failed_cell_and_is_logged(make_plan, data, caplog):
    def step(model, batch):
        raise ValueError("the model's own mistake")

    result = run(make_plan(definition=replace(LOGISTIC, train_step=step)), data)
    assert result.error == "ValueError: the model's own mistake"
    assert "Traceback" in caplog.text


def test_model_too_large_for_the_disk_is_refused_before_training(make_plan, data, monkeypatch):
    steps = []
    plan = make_plan(definition=replace(LOGISTIC, train_step=lambda *batch: steps.append(batch)))
    usage = type("Usage", (), {"free": 100_000})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    with pytest.raises(RunFolderError, match="the run's files need 287 KB, 98 KB are free"):
        run(plan, data)
    assert steps == []
    assert list(plan.folder.path.iterdir()) == []
