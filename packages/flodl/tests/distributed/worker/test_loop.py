"""The loop of a rank, with a link and a trainee that are doubles."""

import contextlib
from types import SimpleNamespace

import pytest

from flodl.distributed.lifecycle.rank import RankMachine
from flodl.distributed.lifecycle.rank_events import FromController
from flodl.distributed.protocol.messages import (
    Abort,
    Accept,
    Bye,
    Quiesced,
    RankError,
    Reconfigure,
    Stop,
    World,
)
from flodl.distributed.protocol.values import Place
from flodl.distributed.worker.loop import RankLoop

UID = "h/g/0"


class Link:
    """Gives out mail by the bag, as it has come."""

    store = None

    def __init__(self, *bags):
        self.bags = [[FromController(gen=gen, message=m) for gen, m in bag] for bag in bags]
        self.sent = []

    def take(self):
        return self.bags.pop(0)

    def wait(self, timeout_s):
        return True

    def is_interrupted(self):
        return False

    def send(self, message, gen=0):
        self.sent.append((message, gen))

    def progress(self, phase, **facts):
        pass


class Trainee:
    model_signature = dataset_signature = "s"

    def __init__(self, problem=None):
        self.formed, self.problem = [], problem
        self.worker = SimpleNamespace(current_epoch=0, should_stop=False)
        self.callbacks = SimpleNamespace(finished=list)

    def form(self, world, store):
        if self.problem is not None:
            raise self.problem
        self.formed.append(world.gen)

    def position(self, batch):
        return ()

    def drop_leases(self):
        pass

    def training(self):
        return contextlib.nullcontext()

    def close(self):
        pass


def world(gen):
    return World(
        gen=gen,
        members=(Place(uid=UID, rank=0, number=0, host="h", is_leader=True, is_new=True),),
        topology="two_level",
        nonce="n",
        timeouts={},
        version=0,
    )


def run(*bags, problem=None):
    trainee = Trainee(problem)
    link = Link([(0, Accept(members=(), gen=1, run_nonce="n"))], *bags)
    loop = RankLoop(RankMachine(UID, 0), link, lambda: trainee)
    return loop.run(), trainee, [message for message, _ in link.sent]


def test_a_generation_that_is_over_by_the_time_it_is_read_is_not_formed():
    over = [(1, world(1)), (2, Reconfigure(gen=2, reason="lost"))]
    code, trainee, sent = run(over, [(3, world(3))], [(3, Bye())])
    assert code == 0
    assert trainee.formed == [3]
    assert [message.gen for message in sent if isinstance(message, Quiesced)] == [2]


def test_a_generation_is_not_formed_when_the_run_has_ended():
    code, trainee, _ = run([(1, world(1)), (1, Abort(reason="failed"))])
    assert (code, trainee.formed) == (1, [])


@pytest.mark.parametrize("asked", [True, False])
def test_user_code_sees_that_the_run_is_to_end(asked):
    message = [(1, Stop(reason="interrupted"))] if asked else []
    _, trainee, _ = run([(1, world(1)), *message], [(1, Bye())])
    assert trainee.worker.should_stop is asked


@pytest.mark.parametrize("problem", [ValueError("bad"), SystemExit("bad")])
def test_what_user_code_raises_is_told_also_where_it_asks_to_exit(problem):
    _, _, sent = run([(1, world(1))], [(1, Bye())], problem=problem)
    (told,) = [message for message in sent if isinstance(message, RankError)]
    assert (told.kind, told.type_name, told.message) == (
        "user",
        f"builtins:{type(problem).__name__}",
        "bad",
    )
    assert "test_loop.py" in told.traceback
