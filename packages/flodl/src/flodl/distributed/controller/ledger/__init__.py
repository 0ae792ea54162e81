"""Which work of an epoch is free, leased, trained and committed: each sample exactly once."""

from flodl.distributed.controller.ledger.book import Committed as Committed
from flodl.distributed.controller.ledger.book import Ledger as Ledger
from flodl.distributed.controller.ledger.epoch import EpochAccount as EpochAccount
from flodl.distributed.controller.ledger.plan import WorkPlan as WorkPlan
