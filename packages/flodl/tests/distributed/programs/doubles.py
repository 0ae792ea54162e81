"""A double of the pure controller: just enough to carry messages through real processes."""

import os

from flodl.distributed.controller.commands import Finish, Persist, ToHost, ToMembers
from flodl.distributed.controller.events import (
    AbortRequested,
    FromHost,
    FromMember,
    LauncherLost,
    StopRequested,
)
from flodl.distributed.protocol.messages import (
    Accept,
    Bye,
    FormAck,
    Hello,
    RankExit,
    Ready,
    Reconfigure,
    World,
)
from flodl.distributed.protocol.values import Admission, Place


class CoreDouble:
    """Accepts everyone, forms one generation, ends it when all have formed."""

    def __init__(self, ranks, *, kept=None, mode=""):
        self._ranks = ranks
        self._goes_on = mode in {"go_on", "stubborn"}
        self._dies = mode == "die"
        self._home = {}
        self._ready, self._formed, self._gone = set(), set(), []
        self.gen = 1 if kept is None else kept["gen"] + 1

    @property
    def _uids(self):
        return tuple(self._home)

    def to_state(self):
        return {"gen": self.gen}

    def next_deadline(self):
        return None

    def handle(self, event, now):
        match event:
            case FromHost(message=Hello()) if self._dies:
                os._exit(9)
            case LauncherLost():
                print("launcher lost", flush=True)
            case FromHost(message=Hello() as hello):
                self._home |= {o.uid: hello.host for o in hello.offers}
                members = tuple(
                    Admission(uid=o.uid, incarnation=o.incarnation, number=self._uids.index(o.uid))
                    for o in hello.offers
                )
                accept = Accept(members=members, gen=self.gen, run_nonce="nonce")
                commands = [
                    Persist(reason="accepted"),
                    ToHost(host=hello.host, gen=self.gen, message=accept),
                ]
                if self.gen > 1:
                    again = Reconfigure(gen=self.gen, reason="controller restarted")
                    commands.append(ToMembers(uids=self._uids, gen=self.gen, message=again))
                return commands
            case FromMember(uid=uid, message=Ready()):
                self._ready.add(uid)
                return self._world() if len(self._ready) == self._ranks else []
            case FromMember(uid=uid, message=FormAck()):
                self._formed.add(uid)
                if len(self._formed) < self._ranks or self._goes_on:
                    return []
                return [ToMembers(uids=self._uids, gen=self.gen, message=Bye())]
            case FromHost(message=RankExit() as gone):
                self._gone.append(gone)
                print(f"exit of {gone.uid}", flush=True)
                if len(self._gone) < self._ranks:
                    return []
                return self._end("done")
            case StopRequested():
                return [ToMembers(uids=self._uids, gen=self.gen, message=Bye())]
            case AbortRequested():
                return self._end("aborted")
        return []

    def _world(self):
        places = tuple(
            Place(uid=uid, rank=n, number=n, host=host)
            for n, (uid, host) in enumerate(self._home.items())
        )
        world = World(
            gen=self.gen, members=places, topology="flat", nonce="n", timeouts={}, version=0
        )
        return [ToMembers(uids=self._uids, gen=self.gen, message=world)]

    def _end(self, reason):
        report = {
            "exits": [[g.code, g.signal, g.last_step] for g in self._gone],
            "tails": [g.log_tail for g in self._gone],
            "gen": self.gen,
        }
        hosts = dict.fromkeys(self._home.values())
        return [
            *(ToHost(host=host, gen=self.gen, message=Bye()) for host in hosts),
            Finish(reason=reason, report=report),
        ]
