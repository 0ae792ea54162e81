"""How many samples a run has to train, epoch by epoch."""

from __future__ import annotations

from dataclasses import dataclass

from flodl.distributed.config.checks import raise_for, whole
from flodl.distributed.elche.partition import equal_split
from flodl.distributed.protocol.values import Range


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkPlan:
    """The epochs of a run as ranges of the order of their pass over the data.

    Raises:
        ConfigError: A number is out of range, or a pass has fewer batches than splits.
    """

    samples: int
    """Positions in one pass: length of the data set times its views."""
    batch_size: int
    num_epochs: int
    drop_last: bool = True
    """Leave out samples at the end of a pass that do not fill a batch."""
    splits: int = 1
    """Epochs that share one pass."""

    def __post_init__(self) -> None:
        problems = [
            *whole("samples", self.samples, 1),
            *whole("batch_size", self.batch_size, 1),
            *whole("num_epochs", self.num_epochs, 1),
            *whole("epoch_splits", self.splits, 1),
        ]
        if not problems and self.pass_batches < self.splits:
            problems.append(
                f"epoch_splits={self.splits}: a pass over {self.samples} samples has "
                f"{self.pass_batches} batches of {self.batch_size}"
            )
        raise_for(problems)

    @property
    def pass_batches(self) -> int:
        """Batches of one pass."""
        full, rest = divmod(self.samples, self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    @property
    def epoch_batches(self) -> int:
        """Batches of the longest epoch."""
        return -(-self.pass_batches // self.splits)

    def data_epoch(self, epoch: int) -> int:
        """Return the pass whose order an epoch's ranges are positions of."""
        return epoch // self.splits

    def bounds(self, epoch: int) -> Range:
        """Return the positions that an epoch trains."""
        part = epoch % self.splits
        sizes = equal_split(self.pass_batches, self.splits)
        first = sum(sizes[:part])
        most = self.samples - self.dropped(epoch)
        return first * self.batch_size, min((first + sizes[part]) * self.batch_size, most)

    def dropped(self, epoch: int) -> int:
        """Return the samples that the epoch's pass leaves out, counted in its last epoch."""
        is_last = epoch % self.splits == self.splits - 1
        return self.samples % self.batch_size if self.drop_last and is_last else 0

    def batches(self, samples: int) -> int:
        """Return how many batches a number of samples makes."""
        return -(-samples // self.batch_size)
