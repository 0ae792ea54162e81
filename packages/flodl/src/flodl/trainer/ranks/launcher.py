"""What ``run()`` does in the user's process when there are several ranks: start and follow them."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from flodl.core.errors import ConfigError, LaunchError
from flodl.distributed.controller.core import Controller
from flodl.distributed.launch.attach import AttachedRun
from flodl.distributed.launch.hardware import chosen_devices, hardware_line
from flodl.distributed.launch.local import Ending, LocalPlan, LocalRun
from flodl.distributed.launch.method import program
from flodl.distributed.launch.results import ResultShelf
from flodl.metrics.epoch import EpochMetrics
from flodl.monitor.place import ServePlace, announcement
from flodl.sys import detect_gpus
from flodl.trainer.config import TrainerConfig
from flodl.trainer.handle import EpochFeed
from flodl.trainer.ranks.offer import RunOffer, take_over, timeline_file
from flodl.trainer.ranks.running import RunningRun, StateLine, metrics_of
from flodl.trainer.ranks.spec import RunSpec
from flodl.trainer.state import TrainedState
from flodl_sys.names import ATTACH

if TYPE_CHECKING:
    from flodl.distributed.launch.threads.run import ThreadRun

_logger = logging.getLogger(__name__)
_SHOWN = (
    "dashboard",
    "record_log",
    "save_dashboard",
    "sinks",
    "timeline",
    "reports_per_epoch",
    "profile_graph",
)
"""Settings that show a run, which is the controller's work where that is a process."""
_ENTRY = "flodl.trainer.ranks.spawned:take_payload"

shelf = ResultShelf()
"""Results of the runs of this program that are over."""


def launch(spec: RunSpec, ordinal: int) -> RunningRun:
    """Start controller and ranks on this host, and return the run's handle at once.

    Raises:
        ConfigError: The devices or the settings do not fit.
        LaunchError: A process cannot be started.
    """
    config = spec.config
    if name := os.environ.pop(ATTACH.name, ""):  # taken up once: later calls start runs
        return _Launched(spec, ordinal).attach(name)
    gpus = detect_gpus()
    devices = chosen_devices(config.devices, config.ranks, gpus)
    on_gpu = devices[0].uuid != "cpu"
    spec.elche(on_gpu=on_gpu)  # refused here, before anything is started
    spec.settings(devices, "check", on_gpu=on_gpu)
    spec.check_places(len(devices))
    sys.stderr.write(hardware_line(gpus) + "\n")
    command = program(config.launch)
    released = None if config.monitor is None else config.monitor.release()
    place = config.watching().place if released is None else released
    plan = LocalPlan(
        devices=devices,
        vendor="cpu" if not on_gpu else gpus[0].vendor.value,
        command=command,
        payload={} if command is not None else _payload(spec),
        entry="" if command is not None else _ENTRY,
        ordinal=ordinal,
        results=shelf.folder,
        listen_host="127.0.0.1" if place is None else place.host,
        port=0 if place is None else place.port,
        timeouts=spec.timeouts(),
        respawn=config.elastic.respawn,
        threads=None if on_gpu else max(1, (os.cpu_count() or 1) // len(devices)),
    )
    # a monitor that served already has told where
    return _Launched(spec, ordinal).start(plan, place, is_told=released is not None)


def launch_threads(spec: RunSpec, ordinal: int) -> RunningRun:
    """Start controller and ranks as threads of this process, and return the run's handle at once.

    For tests: the ranks share one Python interpreter, and nothing but the epochs is shown.

    Raises:
        ConfigError: A device is not the CPU, or something is asked for that needs processes.
    """
    from flodl.distributed.launch.threads.run import ThreadRun

    config = spec.config
    shown = [name for name in _SHOWN if getattr(config, name)]
    if shown:
        raise ConfigError(
            f"launch='thread' and {', '.join(shown)}: runs of threads are for tests, and show no "
            "more than their epochs",
            hint="leave that out, or use launch='spawn' from a test",
        )
    devices = chosen_devices(config.devices, config.ranks, ())
    settings = spec.settings(devices, "threads", on_gpu=False)
    spec.check_places(len(devices))
    meta = spec.resume_meta(settings)
    core = Controller(settings) if meta is None else Controller.resumed(settings, meta)
    launched = _Launched(spec, ordinal)
    run = ThreadRun(core, spec.job(len(devices), on_gpu=False), len(devices), launched.receive)
    return launched.threads(run, len(devices))


def _payload(spec: RunSpec) -> dict[str, object]:
    return {
        "model_factory": spec.model_factory,
        "optim_factory": spec.optim_factory,
        "train_step": spec.train_step,
        "config": _for_others(spec.config),
    }


def _for_others(config: TrainerConfig) -> TrainerConfig:
    """Return the settings without what only the launcher uses: its monitor and observers."""
    given = () if config.monitor is None else config.monitor.sinks
    return dataclasses.replace(
        config, monitor=None, sinks=[*given, *config.sinks], metrics_fn=None, eval_result_fn=None
    )


class _Launched:
    """One run from its start on: passes on what the controller tells."""

    _run: LocalRun | AttachedRun | ThreadRun

    def __init__(self, spec: RunSpec, ordinal: int) -> None:
        self._spec = spec
        self._ordinal = ordinal
        self._feed = EpochFeed()
        self._states = StateLine()

    def start(self, plan: LocalPlan, place: ServePlace | None, *, is_told: bool) -> RunningRun:
        """Start the run.

        Args:
            plan: What is started.
            place: Where its portal is, ``None`` where none was asked for.
            is_told: Whether viewers know that already.
        """
        run = LocalRun(plan, self.receive)
        viewers: dict[str, object] | None = None
        if place is not None:
            viewers = {"token": place.token, "allowed_hosts": list(place.allowed_hosts)}
            lines = [] if is_told else announcement(place, run.port)
            sys.stderr.write("".join(f"{line}\n" for line in lines))
        offer = RunOffer(devices=plan.devices, vendor=plan.vendor, monitor=viewers)
        offer.write(run.folder.path)
        sys.stderr.write(f"ddp: run {run.run}\n")
        return self._follow(run, offer)

    def threads(self, run: ThreadRun, count: int) -> RunningRun:
        """Start a run of threads."""
        self._run = run
        run.start()
        devices = (torch.device("cpu"),) * count
        return RunningRun(run, self._feed, devices, self._states, self._keep, self._over)

    def attach(self, name: str) -> RunningRun:
        """Take up a run whose launcher is gone.

        Raises:
            LaunchError: There is no such run, or another call of the program started it.
        """
        run = AttachedRun(name, self.receive)
        if run.ordinal != self._ordinal:
            raise LaunchError(
                f"{ATTACH.name}={name}: call {run.ordinal} of run() started it, this is call "
                f"{self._ordinal}",
                hint="results of earlier calls went with their launcher; start the run again with "
                "resume_from",
            )
        if self._spec.config.monitor is not None:
            self._spec.config.monitor.release()
        return self._follow(run, RunOffer.read(run.folder.path))

    def _follow(self, run: LocalRun | AttachedRun, offer: RunOffer) -> RunningRun:
        self._run = run
        run.start()
        monitor = self._spec.config.monitor
        if monitor is not None:
            monitor.delegate(
                lambda command: run.send({"op": "monitor", "command": dict(command)}),
                url=f"http://{run.endpoint.address}/",
            )
        devices = tuple(
            torch.device("cuda", device.index) if offer.on_gpu else torch.device("cpu")
            for device in offer.devices
        )
        return RunningRun(run, self._feed, devices, self._states, self._keep, self._over)

    def _over(self, ending: Ending) -> None:
        """Take the timeline, and say the last line where a monitor says any."""
        if self._spec.config.timeline is not None:
            take_over(self._spec.config.timeline, timeline_file(self._run.folder.path))
        monitor, finish = self._spec.config.monitor, ending.finish
        if monitor is None:
            return
        if finish is None:
            monitor.finish(status="aborted")
        else:
            monitor.finish(status="failed" if finish.get("is_failed") else "complete")

    def _keep(self, state: TrainedState) -> None:
        """Keep the result for processes of a later run, which come to this call again."""
        shelf.put(self._ordinal, (state, self._feed.since(0)))

    def receive(self, note: dict[str, Any]) -> None:
        """Pass on what the controller tells."""
        config = self._spec.config
        match note["op"]:
            case "state":
                self._states.set(str(note["state"]), str(note.get("reason", "")))
            case "alert":
                level = {"info": logging.INFO, "error": logging.ERROR}
                _logger.log(
                    level.get(str(note["level"]), logging.WARNING),
                    "%s",
                    note["message"],
                    extra={"alert": str(note["code"])},
                )
            case "epoch":
                self._epoch(metrics_of(note))
            case "eval":
                if config.eval_result_fn is not None:
                    self._tell(
                        "eval_result_fn", config.eval_result_fn, note["epoch"], note["values"]
                    )

    def _epoch(self, metrics: EpochMetrics) -> None:
        config = self._spec.config
        self._feed.add(metrics)
        if config.monitor is not None:
            config.monitor.log(metrics.epoch, metrics.epoch_ms / 1000, metrics)
        if config.metrics_fn is not None:
            self._tell("metrics_fn", config.metrics_fn, metrics)

    def _tell(self, name: str, function: Callable[..., object], *args: Any) -> None:
        """Call a user's observer; what it raises must not end the training it observes."""
        from flodl.trainer.stopping import StopTraining

        try:
            function(*args)
        except StopTraining:
            self._run.stop(reason="stop_training")
        except Exception:
            _logger.exception("%s raised; training goes on", name)
