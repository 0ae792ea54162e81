"""Where controller and ranks begin that get the user's objects by pickle."""

from __future__ import annotations

import sys
from pathlib import Path

from flodl.distributed.cluster.role import Role, role_of
from flodl.distributed.launch.payload import read_payload
from flodl.trainer.ranks.spec import RunSpec


def take_payload(file: Path) -> None:
    """Take the objects of a file, and the role of this process."""
    given = read_payload(file)
    spec = RunSpec(
        given["model_factory"], given["optim_factory"], given["train_step"], given["config"]
    )
    if role_of() is Role.CONTROLLER:
        from flodl.trainer.ranks.controller import be_controller

        be_controller(spec)
        return
    from flodl.trainer.ranks.rank import be_rank

    sys.exit(be_rank(spec))
