from __future__ import annotations

from flodl.data.datasets.catalog import CATALOG


def test_every_published_file_has_what_a_check_and_a_fetch_need() -> None:
    files = [file for group in CATALOG.values() for file in group]
    assert len({file.sha256 for file in files}) == len(files) == 6
    for file in files:
        assert int(file.sha256, 16).bit_length() <= 256
        assert len(file.sha256) == 64
        assert file.size > 0
        assert all(url.startswith("https://") and url.endswith(file.name) for url in file.urls)
