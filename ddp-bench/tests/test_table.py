from ddp_bench.gates import judge_sane
from ddp_bench.results import FinalResult, WallTimes
from ddp_bench.table import render_table

GOLDEN = """\
model     mode    epochs    loss     eval  floor     result  train s  total s
--------  ------  ------  ------  -------  --------  ------  -------  -------
logistic  solo-0     2/2  0.5000   0.8800  >= 0.86   PASS        0.5      0.6
conv-ae   solo-0     2/2  0.0045  0.00412  <= 0.008  PASS        8.1      8.7
char-rnn  solo-0     1/2       -        -  -         FAIL       12.0     13.2
char-rnn/solo-0: status: failed: the loss became NaN
"""


def test_table_shows_each_cell_and_why_one_failed(make_result):
    results = [
        make_result(),
        make_result(
            model="conv-ae",
            config={"floor": 0.008},
            final=FinalResult(
                train_loss=0.0045, eval=0.004123, metric="mse", higher_is_better=False
            ),
            wall=WallTimes(train_only_s=8.1, eval_s=0.5, total_s=8.7),
        ),
        make_result(
            model="char-rnn",
            status="failed",
            error="the loss became NaN",
            config={"floor": None},
            epochs=make_result().epochs[:1],
            final=FinalResult(
                train_loss=None, eval=None, metric="cross_entropy", higher_is_better=False
            ),
            wall=WallTimes(train_only_s=12.0, eval_s=1.0, total_s=13.2),
        ),
    ]
    table = render_table([(result, judge_sane(result)) for result in results])
    assert table == GOLDEN
    assert max(len(line) for line in table.splitlines()) <= 80
