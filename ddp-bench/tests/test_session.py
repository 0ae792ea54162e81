import io
import json

import pytest
import torch

from ddp_bench import matrix
from ddp_bench.data.source import DataSource
from ddp_bench.errors import RunFolderError, UsageError
from ddp_bench.matrix import Request
from ddp_bench.results import FinalResult
from ddp_bench.session import Session


@pytest.fixture(autouse=True)
def threads_as_before():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a session whose cells end as given, instead of training."""

    def call(outcomes, *, as_json=False, **options):
        endings = iter(outcomes)

        def ended(plan, data, *, stream):
            stream.write("  an epoch line\n")
            ending = next(endings)
            if isinstance(ending, BaseException):
                raise ending
            return ending

        monkeypatch.setattr(matrix, "run_cell", ended)
        out, talk = io.StringIO(), io.StringIO()
        request = Request(
            **{
                "models": "logistic,mlp",
                "modes": "solo-0",
                "device": "cpu",
                "output": tmp_path,
                **options,
            }
        )
        code = Session(request, as_json=as_json, out=out, talk=talk).run()
        return code, out.getvalue(), talk.getvalue()

    return call


def test_passed_cells_end_with_the_table_and_code_0(run, make_result, tmp_path):
    code, out, talk = run([make_result(), make_result(model="mlp")])
    assert (code, talk) == (0, "")
    assert out.startswith(
        "\nlogistic/solo-0: softmax regression on MNIST\n"
        "  mini data, 4,000 + 1,000 samples; goal: accuracy >= 0.86\n"
        "  an epoch line\n\nmlp/solo-0: "
    )
    assert out.endswith(f"2 of 2 cells passed in 1.2 s; files: {tmp_path}/<model>/<mode>\n")


def test_cell_below_its_floor_ends_with_code_1_after_all_cells_ran(run, make_result):
    low = FinalResult(train_loss=0.5, eval=0.5, metric="accuracy", higher_is_better=True)
    code, out, _ = run([make_result(final=low), make_result(model="mlp")])
    assert code == 1
    assert "1 of 2 cells passed" in out
    assert "logistic/solo-0: floor: accuracy 0.5, floor >= 0.86" in out


def test_json_is_alone_on_stdout_and_all_talk_on_stderr(run, make_result):
    code, out, talk = run([make_result(), make_result(model="mlp")], as_json=True)
    document = json.loads(out)
    assert (code, document["schema"], document["passed"]) == (0, 1, True)
    assert [cell["result"]["model"] for cell in document["cells"]] == ["logistic", "mlp"]
    assert document["cells"][0]["gates"]["sane"]["verdict"] == "PASS"
    assert "an epoch line" in talk
    assert "2 of 2 cells passed" in talk


def test_interruption_is_one_line_that_says_what_was_kept(run, make_result, tmp_path):
    code, _, talk = run([make_result(), KeyboardInterrupt()])
    assert code == 130
    assert talk == (
        "interrupted: mlp/solo-0 was dropped, its folder is as it was before; "
        f"finished: logistic/solo-0, in {tmp_path}\n"
    )


def test_error_in_a_cell_carries_what_was_kept(run, make_result):
    with pytest.raises(RunFolderError) as caught:
        run([make_result(), RunFolderError("the disk is full")])
    assert caught.value.__notes__[0].startswith("mlp/solo-0 was dropped")


def test_unknown_model_runs_nothing(run):
    with pytest.raises(UsageError, match="unknown model 'mpl'"):
        run([], models="mpl")


def test_scaled_learning_rate_is_announced(run, make_result):
    _, out, _ = run([make_result()], models="logistic", lr_scale=2.0)
    assert "  learning rate 0.002: 0.001 x 2, as --lr-scale says\n" in out


def test_mini_set_ups_run_on_one_thread(run, make_result):
    torch.set_num_threads(2)
    run([make_result()], models="logistic")
    assert torch.get_num_threads() == 1


def test_modes_left_out_of_all_are_named(run, make_result):
    _, out, _ = run([make_result()], models="logistic", modes="all")
    assert out.startswith("modes: solo-0; not available in this version: nccl-sync, nccl-cadence,")
    assert max(map(len, out.partition("logistic")[0].splitlines())) <= 80


def test_interruption_while_data_is_loaded_says_that_nothing_was_written(run, monkeypatch):
    def interrupted(self, spec):
        raise KeyboardInterrupt

    monkeypatch.setattr(DataSource, "load", interrupted)
    code, _, talk = run([])
    assert (code, talk) == (130, "interrupted: before the first cell; nothing was written\n")
