"""The controller's process: what it was started with, and the server that it runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flodl.core.errors import LaunchError
from flodl.distributed.cluster.role import RunPlace, place_of
from flodl.distributed.config.timeouts import Timeouts
from flodl.distributed.controller.commands import Finish
from flodl.distributed.serving.contract import Audience, Core, Door, ServerOptions
from flodl.distributed.serving.journal import ControllerJournal, read_journal
from flodl.distributed.serving.plain_door import plain_door
from flodl.distributed.serving.server import ControllerServer
from flodl.web.extension import Extension
from flodl_sys import names

DoorMaker = Callable[[socket.socket, Extension], Door]


class ControllerProcess:
    """This process as the controller that a launcher started.

    Raises:
        LaunchError: It was not started as one.
    """

    def __init__(self) -> None:
        self.place: RunPlace = place_of()
        # user code that is still to run, and what it starts, need not know it
        self._token = os.environ.pop(names.INTERNAL_TOKEN.name, "")
        if not self._token or self.place.listen_fd < 0:
            raise LaunchError("this process was not started as a controller")

    @property
    def _journal_file(self) -> Path:
        return Path(self.place.run_dir) / "journal"

    def saved_state(self) -> dict[str, Any] | None:
        """Return the state of the controller before this one; ``None`` in the first.

        Raises:
            LaunchError: It was damaged.
        """
        return read_journal(self._journal_file)

    def serve(
        self,
        core: Core,
        *,
        timeouts: Timeouts | None = None,
        audience: Audience | None = None,
        open_door: DoorMaker | None = None,
        death_stem: str | None = None,
    ) -> Finish:
        """Serve until the run is over.

        Args:
            core: Decides.
            timeouts: Deadlines, for ``/state.json`` and the end.
            audience: Takes what the core publishes.
            open_door: Opens the listening socket with the control routes; by default the run's
                plain pages stand beside them.
            death_stem: Beginning of the paths of death files.
        """
        listener = socket.socket(fileno=self.place.listen_fd)
        options = ServerOptions(
            place=self.place,
            token=self._token,
            timeouts=Timeouts() if timeouts is None else timeouts,
            bound_to=str(listener.getsockname()[0]),
            death_stem=death_stem,
        )

        def open_given(extension: Extension) -> Door:
            if open_door is None:
                return plain_door(listener)(extension)
            return open_door(listener, extension)

        server = ControllerServer(
            core,
            options,
            open_given,
            journal=ControllerJournal(self._journal_file),
            audience=audience,
        )
        return server.run()
