import json
from pathlib import Path

import pytest

from flodl_cli.errors import FdlError
from flodl_cli.project import api_reference
from flodl_cli.project.api_reference import find_source, reference

INIT = """\
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from flodl.parts.net import Net as Net
    from flodl.parts.net import train as train
    from other import Foreign as Foreign
__all__ = ["Foreign", "Net", "train"]
"""
NET = '''\
from __future__ import annotations
from flodl.parts.run import Run

class Net(Base):
    """A net.

    >>> Net(1)
    Net
    """

    def __init__(self, width: int, *, deep: bool = False, _secret: int = 0) -> None: ...
    @classmethod
    def load(cls, path: str) -> Net:
        """Return one from a file."""
    def through(self, *modules: object) -> Net:
        """Add modules."""
    def run(self) -> Run:
        """Run it."""
    def _hidden(self): ...

def train(net: Net, epochs=3, **options: int) -> None:
    """Train a net."""
'''
RUN = 'class Run:\n    """What goes on."""\n    def stop(self) -> None: ...\n'


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package called flodl in an environment, and a cache of the test's own."""
    monkeypatch.setattr(api_reference, "user_cache_path", lambda name: tmp_path / "cache" / name)
    monkeypatch.setattr(api_reference, "_SHOWN", ("flodl",))
    site = tmp_path / ".venv" / "lib" / "python3.12" / "site-packages"
    for name, text in (
        ("__init__", INIT),
        ("parts/__init__", ""),
        ("parts/net", NET),
        ("parts/run", RUN),
    ):
        file = site / "flodl" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (site / "flodl-1.2.3.dist-info").mkdir()
    return tmp_path


def test_classes_are_told_with_signatures_builders_and_examples(installed):
    source = find_source(None, installed, {})
    assert (source.version, source.is_installed) == ("1.2.3", True)
    net, run, train = reference(source)
    assert (net.name, net.category, net.file) == ("Net", "parts", "flodl/parts/net.py")
    assert net.signature == "(width: int, *, deep: bool = False)"
    assert (net.doc, net.bases, net.examples) == ("A net.", ("Base",), (">>> Net(1)",))
    assert [each.name for each in net.constructors] == ["load"]
    assert [(each.name, each.signature) for each in net.builder] == [
        ("through", "(*modules: object) -> Net")
    ]
    assert [each.name for each in net.methods] == ["run"]
    assert train.signature == "(net: Net, epochs=3, **options: int) -> None"
    assert (run.name, run.doc) == ("Run", "What goes on."), "what a method returns is told too"


def test_an_installed_version_is_read_once_and_a_broken_cache_is_made_anew(installed):
    source = find_source(None, installed, {})
    entries = reference(source)
    (cache,) = (installed / "cache" / "flodl").iterdir()
    net = installed / ".venv/lib/python3.12/site-packages/flodl/parts/net.py"
    net.write_text("")
    assert reference(source) == entries
    cache.write_text("[{]")
    assert reference(source) != entries
    assert isinstance(json.loads(cache.read_text()), list)


def test_the_source_is_looked_for_at_the_path_then_here_then_in_the_active_environment(installed):
    site = installed / ".venv/lib/python3.12/site-packages"
    away = installed.parent
    assert find_source(site, away, {}).folder == site
    assert find_source(None, away, {"VIRTUAL_ENV": str(installed / ".venv")}).folder == site
    with pytest.raises(FdlError, match="no flodl in"):
        find_source(None, away, {})
    with pytest.raises(FdlError, match=r"--path .*: no flodl package there") as refused:
        find_source(away, away, {})
    assert refused.value.exit_code == 2


def test_the_real_flodl_is_read_from_its_checkout():
    here = Path(__file__)
    source = find_source(None, here.parent, {})
    by_name = {each.name: each for each in reference(source)}
    assert not source.is_installed
    assert "through" in {each.name for each in by_name["FlowBuilder"].builder}
    assert "batch_size" in {each.name for each in by_name["TrainerBuilder"].builder}
    assert by_name["Graph"].category == "graph"
