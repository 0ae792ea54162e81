"""What one connection costs, before it has asked for anything."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from flodl.web.budget import RequestBudget

# a flood of noise must not fill the console of the training; errors of ours still do
_errors = logging.Logger("flodl.web.http", logging.ERROR)  # noqa: LOG001 (level of its own)
_errors.parent = logging.getLogger("flodl.web")


def protocol_charging(budget: RequestBudget) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol, with every connection at the expense of a budget."""

    class ChargedProtocol(H11Protocol):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.logger = _errors

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as its base
            budget.charge_connection()
            super().connection_made(transport)

    return ChargedProtocol
