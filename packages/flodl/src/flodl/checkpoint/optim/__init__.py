"""State files (``.optim``): what optimizers, scalers, schedulers and loaders go on from."""

from flodl.checkpoint.optim.files import Stateful as Stateful
from flodl.checkpoint.optim.files import load_state as load_state
from flodl.checkpoint.optim.files import load_state_file as load_state_file
from flodl.checkpoint.optim.files import save_state as save_state
from flodl.checkpoint.optim.files import save_state_file as save_state_file

__all__ = ["Stateful", "load_state", "load_state_file", "save_state", "save_state_file"]
