"""A program for torchrun and Slurm: each process is a rank, the first brings the controller."""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from doubles import CoreDouble

from flodl.distributed.cluster.role import Role, role_of
from flodl.distributed.hostd.command import Command
from flodl.distributed.launch.decision import Part, Wish, decide
from flodl.distributed.launch.hardware import cpu_devices
from flodl.distributed.launch.local import LocalPlan
from flodl.distributed.serving.process import ControllerProcess

RANKS = 2


def be_rank(outside):
    from flodl.distributed.launch.outside import join_outside
    from flodl.distributed.protocol.messages import Accept, Bye, FormAck, Ready, World

    plan = LocalPlan(
        command=Command.parse(sys.orig_argv), run_dir=Path(os.environ["DOUBLE_RUN_DIR"])
    )
    run = join_outside(
        outside,
        plan,
        device=cpu_devices(1)[0],
        torch_device="cpu",
        receive=lambda note: None,
    )
    link, rank = run.link, outside.rank
    link.progress("boot", step=rank + 5)
    while True:
        link.wait(30.0)
        for mail in link.take():
            match getattr(mail, "message", None):
                case Accept(gen=gen):
                    link.send(Ready(incarnation=0, build_ms=1.0), gen)
                case World(gen=gen, members=members):
                    link.store.set(f"{gen}/here{rank}", b"x")
                    link.store.wait([f"{gen}/here{n}" for n in range(RANKS)], 30.0)
                    total = link.store.add(f"{gen}/sum", rank + 1)
                    print(f"rank {rank} of {len(members)}: sum {total}", flush=True)
                    link.send(FormAck(gen=gen, ok=True, ms=1.0), gen)
                case Bye():
                    link.send(Bye())
                    run.close()
                    if run.controller is not None:
                        print(json.dumps(run.controller.wait().finish), flush=True)
                    sys.exit(0)


if __name__ == "__main__":
    if role_of() is Role.CONTROLLER:
        process = ControllerProcess()
        process.serve(CoreDouble(RANKS))
    else:
        decision = decide(Wish(), gpu_count=lambda: 0)
        assert decision.part is Part.OUTSIDE_RANK, decision
        be_rank(decision.outside)
