from torch import nn

from flodl.nn import DetachableState, NamedInputModule
from flodl.nn.protocols import wants_reset


class Named(nn.Module):
    def forward_named(self, x, refs):
        return x


class Stateful(nn.Module):
    flodl_stateful = True

    def reset(self):
        pass

    def detach_state(self):
        pass


class Unrelated(nn.Module):
    def reset(self):
        raise AssertionError("never to be called by a graph")


def test_protocols_are_recognized_by_their_methods():
    assert isinstance(Named(), NamedInputModule)
    assert not isinstance(nn.Linear(1, 1), NamedInputModule)
    assert isinstance(Stateful(), DetachableState)


def test_a_method_called_reset_is_not_enough():
    assert wants_reset(Stateful())
    assert not wants_reset(Unrelated())
