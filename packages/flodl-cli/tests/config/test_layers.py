import pytest

from flodl_cli.config.layers import load_layers
from flodl_cli.errors import ConfigError, ConfigErrors


@pytest.fixture
def merged(project):
    def load(base, overlay=None, **others):
        project.manifest(base)
        if overlay is not None:
            project.write("fdl.ci.yml", overlay)
        for name, text in others.items():
            project.write(f"{name}.yml", text)
        return load_layers(str(project.root / "fdl.yml"), "ci" if overlay is not None else None)

    return load


def test_maps_merge_and_all_else_is_replaced(merged):
    layers = merged(
        "training: {epochs: 5, seed: 1}\nddp: {partition_ratios: [1, 2]}\n",
        "training: {epochs: 1}\nddp: {partition_ratios: [3]}\n",
    )
    assert layers.document.data == {
        "training": {"epochs": 1, "seed": 1},
        "ddp": {"partition_ratios": [3]},
    }


def test_keys_keep_the_place_of_the_first_layer(merged):
    layers = merged(
        "training: {epochs: 5, seed: 1}\noptions: {a: 1}\n",
        "options: {z: 1, a: 2}\ntraining: {batch_size: 2, epochs: 1}\n",
    )
    assert list(layers.document.data) == ["training", "options"]
    assert list(layers.document.data["training"]) == ["epochs", "seed", "batch_size"]


def test_null_in_an_overlay_deletes_and_in_a_base_is_kept(merged):
    layers = merged(
        "training: {epochs: 5, seed: null}\nentry: x\n", "training: {epochs: null}\nentry: null\n"
    )
    assert layers.document.data == {"training": {"seed": None}}
    assert set(layers.deleted) == {("training", "epochs"), ("entry",)}


def test_change_of_kind_replaces(merged):
    layers = merged(
        "options: {a: 1}\ncluster: true\n", "cluster: {hosts: []}\noptions: {a: [1, 2]}\n"
    )
    assert layers.document.data == {"options": {"a": [1, 2]}, "cluster": {"hosts": []}}


def test_parents_come_first_and_duplicates_once(merged):
    layers = merged(
        "inherit-from: mid.yml\ntraining: {epochs: 3}\n",
        "inherit-from: top.yml\ntraining: {lr: 0.5}\n",
        mid="inherit-from: top.yml\ntraining: {epochs: 2, seed: 2}\n",
        top="training: {epochs: 1, seed: 1, batch_size: 1}\n",
    )
    assert [file.rpartition("/")[2] for file in layers.files] == [
        "top.yml",
        "mid.yml",
        "fdl.yml",
        "fdl.ci.yml",
    ]
    assert layers.document.data == {
        "training": {"epochs": 3, "seed": 2, "batch_size": 1, "lr": 0.5}
    }


def test_each_key_remembers_its_file_and_line(merged, project):
    layers = merged("training:\n  epochs: 5\n  seed: 1\n", "\ntraining:\n  epochs: 1\n")
    place = layers.document.place(("training", "epochs"))
    assert (place.file, place.line) == (str(project.root / "fdl.ci.yml"), 3)
    assert layers.document.place(("training", "seed")).file == str(project.root / "fdl.yml")


def test_fault_after_merging_is_shown_where_it_stands(project):
    project.manifest("entry: x\nddp: {mode: cpu-sync}\n")
    project.write("fdl.ci.yml", "\nddp: {policy: sync}\n")
    result = project.fdl("@ci", "config", "check")
    assert result.code == 2
    assert "mode: cpu-sync already says policy" in result.err


def test_circle_is_shown_whole(merged, project):
    with pytest.raises(ConfigError, match="inherits in a circle") as failed:
        merged("inherit-from: a.yml\n", a="inherit-from: b.yml\n", b="\ninherit-from: fdl.yml\n")
    assert failed.value.file == str(project.root / "b.yml")
    assert failed.value.line == 2
    assert failed.value.message.count(" -> ") == 3


def test_file_that_inherits_from_itself_is_a_circle(merged):
    with pytest.raises(ConfigError, match="circle"):
        merged("inherit-from: ./fdl.yml\n")


def test_missing_parent_names_the_path(merged, project):
    with pytest.raises(ConfigError, match=rf"there is no {project.root}/gone\.yml"):
        merged("inherit-from: gone.yml\n")


@pytest.mark.parametrize("value", ["3", "[a]", "''"])
def test_parent_that_is_no_text_is_an_error(merged, value):
    with pytest.raises(ConfigErrors):
        merged(f"inherit-from: {value}\n")


def test_unknown_key_of_an_overlay_names_the_overlay(project):
    project.manifest("entry: x\n")
    project.write("fdl.ci.yml", "\nentyr: y\n")
    result = project.fdl("@ci", "config", "show")
    assert result.code == 2
    assert result.err.startswith("error: fdl.ci.yml:2: entyr: unknown key 'entyr'")


def test_two_overlays_of_one_name_are_an_error(project):
    project.manifest("entry: x\n")
    project.write("fdl.ci.yml", "")
    project.write("fdl.ci.json", "{}")
    assert "stand in one directory" in project.fdl("@ci", "config", "show").err
