import csv
import json
import math
import re

import pytest

from flodl.graph.viz.curves import log_lines, page, table

SERIES = {"loss": [1.5264, 0.5, math.nan], 'a</script>"<b>': [1.0]}


def test_page_is_one_file_and_names_cannot_leave_the_script():
    text = page("<run> & more", SERIES, "units")
    assert text.count("</script>") == 2
    assert "&lt;run&gt; &amp; more" in text
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", text)
    data = json.loads(re.search(r"const data = (.*);", text)[1])
    assert data["names"] == list(SERIES)
    assert data["epochs"] == [1, 2, 3]
    assert data["values"] == [[1.5264, 0.5, None], [1.0, None, None]]


def test_table_has_full_precision_and_empty_cells(tmp_path):
    third = 1 / 3
    (tmp_path / "a.csv").write_text(table({"a,b": [third, 2.0], "c": [1.0]}))
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [["epoch", "a,b", "c"], ["1", repr(third), "1.0"], ["2", "2.0", ""]]


def test_log_has_one_line_an_epoch():
    lines = log_lines({"loss": [1.5264, 0.25], "acc": [0.5]}, 4, 0.049)
    assert lines == [
        "epoch   1  loss=1.5264  acc=0.5000  [49ms  ETA 147ms]",
        "epoch   2  loss=0.2500  [49ms  ETA 98ms]",
    ]


@pytest.mark.parametrize("total", [0, 1])
def test_log_without_remaining_epochs_has_no_eta(total):
    assert log_lines({"loss": [1.0]}, total, 2.0) == ["epoch   1  loss=1.0000  [2s]"]
