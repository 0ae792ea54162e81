import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from flodl_cli.config.layers import load_layers
from flodl_cli.config.show import aligned, as_data, effective, show

BASE = """\
# the example of the landing page
docker: dev

# how ranks work together


ddp:
  policy: cadence
  backend: nccl
  divergence_threshold: 0.05
training:
  epochs: 50
  seed: 42
  batch_size: 32

commands:
  # one epoch
  quick:
    training: { epochs: 1 }
    options: { model: linear, batches: 100 }
"""
OVERLAY = """\
# in CI
ddp:
  backend: cpu

training:
  epochs: 1
"""
SHOWN = """\
# resolved manifest, base + overlay
docker: dev                     # fdl.yml:2
ddp:
  policy: cadence               # fdl.yml:8
  backend: cpu                  # fdl.ci.yml:3 (override)
  divergence_threshold: 0.05    # fdl.yml:10
training:
  epochs: 1                     # fdl.ci.yml:6 (override)
  seed: 42                      # fdl.yml:13
  batch_size: 32                # fdl.yml:14
commands:
  quick:                        # fdl.yml:18 (preset)
    training: { epochs: 1 }
    options: { model: linear, batches: 100 }
"""


@pytest.fixture
def landing(project):
    project.manifest(BASE)
    project.write("fdl.ci.yml", OVERLAY)
    return project


@pytest.mark.parametrize(
    "argv", [("--env", "ci", "config", "show"), ("config", "show", "ci"), ("ci", "config", "show")]
)
def test_example_of_the_landing_page_byte_for_byte(landing, argv):
    assert landing.fdl(*argv) == (0, SHOWN, "")


def test_overlay_of_the_environment(landing, monkeypatch):
    monkeypatch.setenv("FDL_ENV", "ci")
    assert landing.fdl("config", "show").out == SHOWN
    landing.write("fdl.other.yml", "docker: prod\n")
    assert "docker: prod" in landing.fdl("config", "show", "other").out


def test_base_alone(landing):
    lines = landing.fdl("config", "show").out.splitlines()
    assert lines[0] == "# resolved manifest, base"
    assert "  backend: nccl                 # fdl.yml:9" in lines


def test_variable_is_named_as_the_origin(landing, monkeypatch):
    monkeypatch.setenv("FDL_TRAINING__EPOCHS", "7")
    monkeypatch.setenv("FDL_OUTPUT__MONITOR", "8080")
    lines = landing.fdl("config", "show").out.splitlines()
    assert "  epochs: 7                     # $FDL_TRAINING__EPOCHS (override)" in lines
    assert "  monitor: 8080                 # $FDL_OUTPUT__MONITOR" in lines


def test_preset_that_an_overlay_changes_is_written_out(landing):
    landing.write("fdl.ci.yml", "commands:\n  quick:\n    training: {epochs: 2}\n")
    assert landing.fdl("@ci", "config", "show").out.endswith(
        "commands:\n"
        "  quick:                        # fdl.yml:18 (preset)\n"
        "    training:\n"
        "      epochs: 2                 # fdl.ci.yml:3 (override)\n"
        "    options:\n"
        "      model: linear             # fdl.yml:20\n"
        "      batches: 100              # fdl.yml:20\n"
    )


def test_wide_lines_do_not_push_the_others(project):
    project.manifest(f"entry: {'x' * 60}\ndescription: {'y' * 30}\ndocker: dev\n")
    lines = project.fdl("config", "show").out.splitlines()
    assert lines[1] == f"entry: {'x' * 60}  # fdl.yml:1"
    assert lines[2] == f"description: {'y' * 30}  # fdl.yml:2"
    assert lines[3] == f"{'docker: dev':45}# fdl.yml:3"


def test_long_list_is_written_in_lines_with_the_remark_on_its_key(project):
    words = [f"--word-number-{n}" for n in range(8)]
    project.manifest(f"entry: e\noptions: {{a: [1, 2], long: {json.dumps(words)}}}\n")
    lines = project.fdl("config", "show").out.splitlines()
    assert "  a: [1, 2]                     # fdl.yml:2" in lines
    assert "  long:                         # fdl.yml:2" in lines
    assert "    - --word-number-7" in lines


def test_line_is_that_of_the_value(project):
    project.manifest("env:\n  A:\n    text\ncommands:\n  t:\n    run: |\n      one\n      two\n")
    out = project.fdl("config", "show").out
    assert "  A: text                       # fdl.yml:3" in out
    assert 'run: "one\\ntwo\\n"           # fdl.yml:6' in out


def test_files_are_named_from_the_manifests_folder(project, monkeypatch):
    project.write("shared/base.yml", "docker: dev\n")
    project.write("p/fdl.yml", "inherit-from: ../shared/base.yml\n")
    monkeypatch.chdir(project.root / "p")
    assert (
        "docker: dev                     # ../shared/base.yml:1"
        in project.fdl("config", "show").out
    )


def test_all_names_what_was_deleted(landing):
    landing.write("fdl.ci.yml", "\ntraining:\n  seed: null\n")
    assert "seed" not in landing.fdl("@ci", "config", "show").out
    assert landing.fdl("@ci", "config", "show", "--all").out.endswith(
        "# training.seed deleted by fdl.ci.yml:3\n"
    )


def test_plain_has_no_remarks(landing):
    assert "#" not in landing.fdl("@ci", "config", "show", "--plain").out


def test_json_says_kind_and_what_was_overridden(landing):
    data = json.loads(landing.fdl("@ci", "config", "show", "--json").out)
    entries = {entry["path"]: entry for entry in data}
    backend = entries["ddp.backend"]
    assert (backend["value"], backend["layer"], backend["line"]) == ("cpu", "fdl.ci.yml", 3)
    assert backend["kind"] == "override"
    assert [each["value"] for each in backend["overrides"]] == ["nccl"]
    assert entries["docker"]["kind"] == "base"
    assert entries["commands.quick.training.epochs"]["kind"] == "preset"


def test_color_dims_the_remarks_only(landing):
    out = landing.fdl("--ansi", "config", "show").out
    assert "docker: dev                     \x1b[2m# fdl.yml:2\x1b[0m" in out


def test_outside_a_project_is_misuse(project):
    assert project.fdl("config", "show").code == 2


characters = st.characters(codec="utf-8", exclude_characters="\0")
texts = st.text(characters, min_size=1, max_size=12)
variables = texts.filter(lambda text: "=" not in text)
scalars = st.one_of(
    texts, st.integers(-99, 99), st.booleans(), st.floats(allow_nan=False, allow_infinity=False)
)
values = st.one_of(scalars, st.lists(scalars, max_size=3))
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,8}", fullmatch=True)
manifests = st.fixed_dictionaries(
    {},
    optional={
        "description": texts,
        "entry": texts,
        "options": st.dictionaries(names, values, max_size=3),
        "env": st.dictionaries(variables, st.text(characters, max_size=9), max_size=3),
        "training": st.fixed_dictionaries(
            {}, optional={"epochs": st.integers(1, 9), "lr": st.just(0.1)}
        ),
        "commands": st.dictionaries(
            st.sampled_from(["a", "b"]),
            st.fixed_dictionaries({"options": st.dictionaries(names, values, max_size=2)}),
            max_size=2,
        ),
    },
)


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(base=manifests, overlay=manifests)
def test_output_without_remarks_reads_back_as_the_merged_values(tmp_path, base, overlay):
    (tmp_path / "fdl.json").write_text(json.dumps(base))
    (tmp_path / "fdl.ci.json").write_text(json.dumps(overlay))
    layers = load_layers(str(tmp_path / "fdl.json"), "ci")
    text = "\n".join(line.text + line.tag for line in aligned(show(layers, {})))
    again = YAML(typ="safe", pure=True).load(text) or {}
    # A map without keys has no line of its own below a block.
    assert again == effective(layers, {})
    assert len(as_data(layers, {})) >= len(layers.deleted)
