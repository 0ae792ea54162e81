"""Calling what users gave to watch a run."""

from __future__ import annotations

import logging
from typing import Any

from flodl.trainer.stopping import StopTraining

_logger = logging.getLogger(__name__)


def notify(name: str, function: Any, *args: Any) -> bool:
    """Call a user's observer; what it raises must not end the training it observes.

    Returns:
        Whether it has asked that the run ends, by ``StopTraining``.
    """
    try:
        function(*args)
    except StopTraining:
        return True
    except Exception:
        _logger.exception("%s raised; training goes on", name)
    return False
