import sys

import pytest

from ddp_bench.errors import RegistrationError, UsageError
from ddp_bench.registry import BUILT_IN, choose_models, load_models

PLUGIN = """
from dataclasses import replace
from ddp_bench.models.mlp import MLP
wide = replace(MLP, name="wide-mlp")
twin = MLP
number = 7
"""


@pytest.fixture
def register(tmp_path, monkeypatch):
    """Install a package with one entry point, as its metadata on the path."""

    def install(value: str) -> None:
        (tmp_path / "bench_plugin.py").write_text(PLUGIN)
        info = tmp_path / "bench_plugin-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bench-plugin\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[ddp_bench.models]\nwide = {value}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "bench_plugin", raising=False)

    return install


def test_built_in_models_come_in_order():
    assert list(load_models())[:5] == ["logistic", "mlp", "lenet", "conv-ae", "char-rnn"]
    assert [definition.name for definition in BUILT_IN] == list(load_models())[:5]


def test_registered_model_is_one_of_the_models(register):
    register("bench_plugin:wide")
    assert list(load_models())[-1] == "wide-mlp"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("bench_plugin:number", "is a int, not a ddp_bench.definition.ModelDef"),
        ("bench_plugin:twin", "defines the model 'mlp'; a model of that name is there already"),
        ("bench_plugin:missing", "does not load: AttributeError"),
        ("no_such_module:x", "does not load: ModuleNotFoundError"),
    ],
)
def test_unusable_registration_names_the_package_and_the_reason(register, value, reason):
    register(value)
    with pytest.raises(RegistrationError, match=reason) as caught:
        load_models()
    assert "of the package bench-plugin" in str(caught.value)


def test_models_are_chosen_by_name_in_the_order_given():
    models = load_models()
    assert [d.name for d in choose_models("lenet,mlp", models)] == ["lenet", "mlp"]
    assert choose_models("all", models) == list(models.values())


def test_unknown_model_lists_legal_and_near_names():
    with pytest.raises(UsageError, match="unknown model 'mpl'; models: logistic, mlp") as caught:
        choose_models("logistic,mpl", load_models())
    assert "did you mean mlp" in str(caught.value)
