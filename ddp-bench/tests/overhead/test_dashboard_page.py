from concurrent.futures import ThreadPoolExecutor

import pytest

from ddp_bench.overhead import dashboard_page as page


def test_a_percentile_is_a_value_that_was_measured():
    values = [float(n) for n in range(100, 0, -1)]
    assert page.percentile(values, 0.95) == 95.0
    assert page.percentile([7.0], 0.95) == 7.0


def test_a_record_waits_for_the_first_drawing_that_holds_it():
    published = [(4, 100.0), (7, 200.0)]
    drawn = [[3, 90.0, 1.0], [6, 150.0, 1.0], [9, 260.0, 1.0]]
    assert page.delays_ms(published, drawn) == [50.0, 60.0]
    with pytest.raises(ValueError, match="record 10 was never drawn"):
        page.delays_ms([(10, 300.0)], drawn)


def test_where_there_is_no_browser_it_is_told_and_nothing_is_measured(monkeypatch, capsys):
    monkeypatch.setattr(page.shutil, "which", lambda name: None)
    assert page.main([]) == 2
    assert "apt install chromium" in capsys.readouterr().err


def measured():
    with page.browser() as launched:
        return [
            *page.freshness(launched, records=5, ranks=2),
            page.late_join(launched, epochs=20),
            page.saved_page(launched, ticks=3),
            page.an_hour(launched, updates=40, ranks=3),
        ]


@pytest.mark.browser
def test_every_figure_of_the_page_is_measured():
    # in a thread of its own: the browser of other tests keeps an event loop running in this one
    with ThreadPoolExecutor(max_workers=1) as pool:
        figures = pool.submit(measured).result()
    assert len(figures) == 5
    assert all(figure.value > 0 for figure in figures)
