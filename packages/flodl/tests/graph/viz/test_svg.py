import re
from xml.etree import ElementTree

import pytest
import torch

from flodl.core.errors import ConfigError, NoDataError
from flodl.graph.viz import graphviz
from flodl.graph.viz.layout import lay_out
from flodl.graph.viz.scene import scene_of

NS = "{http://www.w3.org/2000/svg}"


def test_picture_is_well_formed_and_complete(picture, tmp_path):
    text = picture.svg(tmp_path / "a.svg", engine="builtin", expand=1)
    assert (tmp_path / "a.svg").read_text() == text
    root = ElementTree.fromstring(text)
    assert not list(root.iter(f"{NS}script"))
    shown = {group.get("data-node") for group in root.iter(f"{NS}g")}
    assert {item.id for item in scene_of(picture, expand=1).items} <= shown
    assert picture.svg(engine="builtin", expand=1) == text


def test_nothing_overlaps_or_lies_outside(picture):
    scene = scene_of(picture, expand=1)
    layout = lay_out(scene)
    items = [layout.boxes[item.id] for item in scene.items]
    for index, one in enumerate(items):
        assert one.width / 2 <= one.x <= layout.width - one.width / 2 + 0.1
        assert one.height / 2 <= one.y <= layout.height - one.height / 2 + 0.1
        for other in items[index + 1 :]:
            apart_x = abs(one.x - other.x) >= (one.width + other.width) / 2
            apart_y = abs(one.y - other.y) >= (one.height + other.height) / 2
            assert apart_x or apart_y


def test_profile_has_times_and_heat(picture, tmp_path):
    with pytest.raises(NoDataError, match="no call was profiled"):
        picture.svg_with_profile()
    picture.enable_profiling()
    picture(torch.ones(2, 4), torch.ones(2, 4))
    text = picture.svg_with_profile(tmp_path / "p.svg", engine="builtin")
    ElementTree.fromstring(text)
    assert "#e74c3c" in text
    assert re.search(r"level 1: [\d.]+ (µs|ms)", text)


def test_missing_graphviz_is_said(picture, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(ConfigError, match=r"dot is not installed\nhint: install Graphviz"):
        picture.svg(engine="dot")
    assert not graphviz.has_graphviz()
    assert picture.svg().startswith("<svg")
