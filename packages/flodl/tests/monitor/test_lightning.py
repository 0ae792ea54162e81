"""The logger against the real library, in a process of its own: it changes the environment."""

import importlib.util
import json
import subprocess
import sys

import pytest

from flodl.monitor.errors import MissingExtraError

TRAINING = """
import sys, json, warnings, logging
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
import torch
from lightning.pytorch import LightningModule, Trainer
from flodl.monitor import Monitor
from flodl.monitor.lightning import FlodlLogger

class Model(LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, index):
        loss = (self.layer(batch[0]) - batch[0]).square().mean()
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, index):
        self.log("val", (self.layer(batch[0]) - batch[0]).abs().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)

x = torch.utils.data.TensorDataset(torch.linspace(0, 1, 16).reshape(-1, 1))
loader = torch.utils.data.DataLoader(x, batch_size=4)
monitor = Monitor(2, name="lit", stream=sys.stderr)
trainer = Trainer(
    max_epochs=2, logger=FlodlLogger(monitor), accelerator="cpu", log_every_n_steps=2,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    default_root_dir=sys.argv[1],
)
trainer.fit(Model(lr=0.1), loader, loader)
rows = [r.body() for r in monitor.board.tree.history("root", n=100).records if r.kind == "node"]
print(json.dumps({
    "history": [[r.epoch, sorted(r.metrics)] for r in monitor.history],
    "steps": [r.get("step") for r in rows if "tick" in r and "loss_step" in r["metrics"]],
    "metadata": monitor.board.metadata,
    "status": monitor.board.status,
    "names": [trainer.logger.name, trainer.logger.version == monitor.board.tree.run["id"]],
}))
"""


@pytest.mark.slow
def test_a_lightning_trainer_shows_its_epochs_steps_and_settings(tmp_path):
    if importlib.util.find_spec("lightning") is None:
        pytest.skip("Lightning is not installed")
    done = subprocess.run(
        [sys.executable, "-c", TRAINING, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["history"] == [[n, ["loss_epoch", "loss_step", "val"]] for n in range(2)]
    assert seen["steps"] == [1, 3, 5, 7]
    assert seen["metadata"] == {"lr": 0.1}
    assert seen["status"] == "done"
    assert seen["names"] == ["lit", True]
    assert "epoch 2/2" in done.stderr
    assert "training complete" in done.stderr


def test_without_lightning_the_error_names_the_command(monkeypatch):
    for name in ("lightning.pytorch.loggers.logger", "pytorch_lightning.loggers.logger"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "flodl.monitor.lightning", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'flodl\[lightning\]'"):
        import flodl.monitor.lightning  # noqa: F401
