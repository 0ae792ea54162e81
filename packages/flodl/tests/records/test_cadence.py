import pytest

from flodl.core.errors import ConfigError
from flodl.records.cadence import ReportSchedule


def fired(schedule, works, pause=1.0):
    return [work for n, work in enumerate(works) if schedule.is_due(work, now=n * pause)]


def test_four_reports_fall_on_the_quarters_and_a_fifth_never_comes():
    assert fired(ReportSchedule(4, 100), [*range(1, 101), 100, 101, 200]) == [25, 50, 75, 100]


def test_small_windows_add_up():
    assert fired(ReportSchedule(4, 100), range(3, 101, 3))[0] == 27


def test_one_jump_fires_once_and_the_next_is_due_where_it_was():
    assert fired(ReportSchedule(10, 100), [35, 36, 39, 40, 42, 43, 49]) == [35, 40]
    assert fired(ReportSchedule(10, 100), [35, 42]) == [35, 42]


def test_a_long_epoch_gets_exactly_as_many_as_asked_for():
    assert len(fired(ReportSchedule(5, 10_000), range(1, 10_001))) == 5


@pytest.mark.parametrize("scale", [1, 128, 0.5])
def test_the_unit_of_work_does_not_matter(scale):
    works = [n * scale for n in range(1, 101)]
    assert fired(ReportSchedule(7, 100 * scale), works) == [
        n * scale for n in fired(ReportSchedule(7, 100), range(1, 101))
    ]


def test_no_reports_are_the_default_and_fewer_is_an_error():
    assert fired(ReportSchedule(0, 100), range(200)) == []
    with pytest.raises(ConfigError, match="reports_per_epoch=-1"):
        ReportSchedule(-1, 100)


def test_reports_are_a_quarter_of_a_second_apart():
    works = fired(ReportSchedule(100, 100), range(1, 101), pause=0.1)
    assert works == list(range(1, 101, 3))


def test_an_epoch_of_unknown_length_reports_every_five_seconds():
    assert fired(ReportSchedule(20, None), range(13)) == [5, 10]
