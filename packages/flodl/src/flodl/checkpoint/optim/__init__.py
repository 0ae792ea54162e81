"""State files (``.optim``): what optimizers, scalers, schedulers and loaders go on from."""

from flodl.checkpoint.optim.files import StateDocument as StateDocument
from flodl.checkpoint.optim.files import Stateful as Stateful
from flodl.checkpoint.optim.files import load_state as load_state
from flodl.checkpoint.optim.files import load_state_file as load_state_file
from flodl.checkpoint.optim.files import save_state as save_state
from flodl.checkpoint.optim.files import save_state_file as save_state_file
from flodl.checkpoint.optim.files import state_document as state_document

__all__ = [
    "StateDocument",
    "Stateful",
    "load_state",
    "load_state_file",
    "save_state",
    "save_state_file",
    "state_document",
]
