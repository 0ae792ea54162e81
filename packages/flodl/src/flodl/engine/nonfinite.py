"""What happens when a loss is NaN or infinite, where no loop looks after it."""

from __future__ import annotations

import logging
import math

from flodl.core.errors import NonFiniteError
from flodl.engine.config import NonFinitePolicy
from flodl.engine.ring import StepRecord

_logger = logging.getLogger(__name__)

NON_FINITE_HINT = "lower the learning rate, clip gradients, or check the inputs"


class NonFiniteWatch:
    """Looks out for losses that are not finite.

    Args:
        policy: What such a loss does.
    """

    def __init__(self, policy: NonFinitePolicy) -> None:
        self._policy = policy
        self._warned = False

    def __call__(self, record: StepRecord) -> None:
        """Look at one record.

        Raises:
            NonFiniteError: The loss is not finite and the policy is ``"raise"``.
        """
        if math.isfinite(record.values[0]):
            return
        message = f"the training loss became NaN or infinite at step {record.index}"
        if self._policy == "raise":
            raise NonFiniteError(message, hint=NON_FINITE_HINT)
        if not self._warned:
            self._warned = True
            what = "skipping such steps" if self._policy == "skip" else "going on"
            _logger.warning("%s; %s because on_nonfinite is %r", message, what, self._policy)
