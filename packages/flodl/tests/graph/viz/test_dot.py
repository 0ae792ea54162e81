import re

from torch import nn

from flodl.graph import FlowBuilder

GOLDEN = r"""digraph flow {
  label="small HASH";
  labelloc=t; rankdir=TB; fontname="Helvetica"; compound=true;
  node [fontname="Helvetica", fontsize=11, style=filled, color="#7f8c8d"];
  edge [fontname="Helvetica", fontsize=10, arrowsize=0.7];
  subgraph "cluster_level_0" {
    label="level 0"; style=dashed; color="#bdc3c7"; fontsize=9;
    "input_input_0" [label="input", shape=invhouse, fillcolor="#aed6f1"];
  }
  subgraph "cluster_level_1" {
    label="level 1"; style=dashed; color="#bdc3c7"; fontsize=9;
    "linear_1" [label="Linear\n#a\n[6 params]", shape=box, fillcolor="#eaecee"];
  }
  subgraph "cluster_level_2" {
    label="level 2"; style=dashed; color="#bdc3c7"; fontsize=9;
    "tanh_2" [label="Tanh", shape=ellipse, fillcolor="#fdebd0"];
  }
  subgraph "cluster_level_3" {
    label="level 3"; style=dashed; color="#bdc3c7"; fontsize=9;
    "add_3" [label="+", shape=circle, fillcolor="#d5dbdb"];
  }
  subgraph "cluster_level_4" {
    label="level 4"; style=dashed; color="#bdc3c7"; fontsize=9;
    "output.stream" [label="output", shape=house, fillcolor="#a9dfbf"];
  }
  "input_input_0" -> "linear_1" [color="#2c3e50"];
  "linear_1" -> "tanh_2" [color="#2c3e50"];
  "linear_1" -> "add_3" [color="#2c3e50"];
  "tanh_2" -> "add_3" [color="#2c3e50"];
  "add_3" -> "output.stream" [color="#2c3e50"];
}
"""

# One statement, one brace, or the rest of a line that a quoted string may be part of.
STRING = r'"(?:[^"\\]|\\.)*"'
LINE = re.compile(
    rf"\s*(digraph flow {{|subgraph {STRING} {{|}}|({STRING}( -> {STRING})?|node|edge) "
    rf"\[(\w+=(\w+|{STRING}|[\d.]+)(, )?)*\];|((\w+=({STRING}|[\w.]+));?\s*)+)"
)


def test_text_is_the_same_for_the_same_graph():
    graph = FlowBuilder(nn.Linear(2, 2)).tag("a").also(nn.Tanh()).label("small").build()
    assert graph.dot() == GOLDEN.replace("HASH", graph.short_hash)
    assert graph.dot() == graph.dot()


def test_hostile_names_stay_in_their_quotes(picture):
    for text in (picture.dot(), picture.dot(expand=1)):
        for line in text.splitlines():
            assert LINE.fullmatch(line), line
        assert text.count("{") - text.count("}") == 0


def test_times_and_colors_of_a_profile(picture):
    import torch

    picture.enable_profiling()
    picture(torch.ones(2, 4), torch.ones(2, 4))
    text = picture.dot_with_profile()
    assert re.search(r'"linear_1" \[label="Linear\\n#first\\n\[20 params\]\\n[\d.]+ (µs|ms)"', text)
    assert 'fillcolor="#e74c3c"' in text
    assert "parallelism" in text
