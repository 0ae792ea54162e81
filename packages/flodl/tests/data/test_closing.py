from __future__ import annotations

import pytest

from flodl.data.closing import Closing


class Door(Closing):
    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_a_block_closes_what_it_opened_also_after_an_error() -> None:
    with Door() as door:
        assert not door.is_closed
    assert door.is_closed
    other = Door()
    with pytest.raises(ValueError, match="inside"), other:
        raise ValueError("inside")
    assert other.is_closed
