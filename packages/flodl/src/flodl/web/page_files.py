"""The files that came with this package for its pages."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

PORTAL = "portal.html"
TIMELINE = "timeline.html"
_FOLDERS = ("flodl.web.static", "flodl.core.assets")
_SERVED = (".html", ".js", ".css", ".svg")


@dataclass(frozen=True, slots=True)
class PageFiles:
    """The files of the pages by name, and a digest over all of them."""

    content: dict[str, bytes]
    digest: str

    def text(self, name: str) -> str:
        """Return a file's text.

        Raises:
            KeyError: There is no such file.
        """
        return self.content[name].decode()


@cache
def page_files() -> PageFiles:
    """Return the files that came with this package; a name is looked up among the pages first."""
    content: dict[str, bytes] = {}
    for folder in reversed(_FOLDERS):
        package, _, inner = folder.rpartition(".")
        for entry in files(package).joinpath(inner).iterdir():
            if entry.name.endswith(_SERVED):
                content[entry.name] = entry.read_bytes()
    digest = hashlib.sha256()
    for name in sorted(content):
        digest.update(name.encode() + b"\0" + content[name])
    return PageFiles(content, digest.hexdigest()[:16])
