"""Small sets for the loader suite."""

from __future__ import annotations

from typing import Any

import pytest

from ddp_bench.loading.sets import make_cases

SMALL = 0.001


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    made = make_cases(tmp_path_factory.mktemp("sets"), SMALL)
    return {case.name: case for case in made}
