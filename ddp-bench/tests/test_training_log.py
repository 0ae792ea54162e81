import math

import pytest

from ddp_bench.errors import LogFormatError
from ddp_bench.training_log import LogEpoch, TrainingLog, format_log, parse_log

LOG = TrainingLog(
    ranks=("cpu r0 [host-a:cpu]: A CPU, at 2.1 GHz (2 cores)",),
    epochs=(
        LogEpoch(
            epoch=0,
            loss=0.311125,
            train_s=2.1,
            evaluation=0.9732,
            eval_s=0.3,
            scalars={"train_acc": 0.9021},
        ),
        LogEpoch(epoch=1, loss=0.131376, train_s=2.3, scalars={"train_acc": 0.94}),
        LogEpoch(epoch=2, loss=0.001, train_s=2.0, evaluation=0.004712, eval_s=0.1),
    ),
    final_eval=0.9732,
    train_only_s=10.3,
    eval_s=1.2,
    total_s=72.6,
)
TEXT = """\
# cpu r0 [host-a:cpu]: A CPU, at 2.1 GHz (2 cores)
epoch 0: loss=0.311125, eval=0.9732, train_acc=0.9021, train=2.1s, eval_time=0.3s
epoch 1: loss=0.131376, train_acc=0.9400, time=2.3s
epoch 2: loss=0.001000, eval=0.004712, train=2.0s, eval_time=0.1s
final eval=0.9732
# train_only: 10.3s (eval: 1.2s)
# total: 72.6s (1m 13s)
"""


def test_log_has_the_documented_form():
    assert format_log(LOG) == TEXT


def test_log_is_read_back_as_it_was_written():
    assert parse_log(format_log(LOG)) == LOG


def test_text_survives_reading_and_writing():
    assert format_log(parse_log(TEXT)) == TEXT


def test_log_of_a_gpu_rank_is_read():
    line = "# gpu r0 [host-a:cuda0]: NVIDIA Something (16GB, sm_120)\n"
    assert parse_log(line + TEXT).ranks[0] == line[2:-1]


def test_run_without_any_epoch_is_read_back():
    empty = TrainingLog(
        ranks=(), epochs=(), final_eval=None, train_only_s=0.0, eval_s=0.0, total_s=0.2
    )
    assert parse_log(format_log(empty)) == empty


def test_diverged_run_is_read_back():
    log = parse_log(TEXT.replace("0.131376", "nan").replace("final eval=0.9732", "final eval=inf"))
    assert math.isnan(log.epochs[1].loss)
    assert log.final_eval == math.inf


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("# total: 72.6s (1m 13s)\n", "", "'# total'"),
        ("final eval", "final", "no line of a training log"),
        ("loss=0.311125", "loss=much", "no name=number"),
        ("loss=0.131376, ", "", "needs loss="),
        (", time=2.3s", "", "needs loss= and train= or time="),
    ],
)
def test_damaged_log_says_where_and_what(old, new, reason):
    with pytest.raises(LogFormatError, match=reason):
        parse_log(TEXT.replace(old, new))


def test_damaged_line_is_named_by_file_and_number():
    with pytest.raises(LogFormatError, match=r"^run/training\.log:3: "):
        parse_log(TEXT.replace("0.131376", "x"), source="run/training.log")
