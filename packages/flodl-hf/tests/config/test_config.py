import json

import pytest

from flodl_hf import (
    AlbertConfig,
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    BertConfig,
    ConfigError,
    DebertaV2Config,
    DistilBertConfig,
    RobertaConfig,
    UnsupportedModelTypeError,
    XlmRobertaConfig,
)

SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 20,
}
CLASSES = {
    "bert": (BertConfig, SIZES),
    "roberta": (RobertaConfig, SIZES),
    "xlm-roberta": (XlmRobertaConfig, SIZES),
    "albert": (AlbertConfig, {**SIZES, "embedding_size": 8}),
    "deberta-v2": (DebertaV2Config, SIZES),
    "distilbert": (
        DistilBertConfig,
        {
            "vocab_size": 40,
            "dim": 16,
            "n_layers": 2,
            "n_heads": 2,
            "hidden_dim": 8,
            "max_position_embeddings": 20,
        },
    ),
}


def read(family="bert", **changes):
    return AutoConfig.from_json(json.dumps({**CLASSES[family][1], "model_type": family, **changes}))


@pytest.mark.parametrize("family", CLASSES)
def test_the_text_makes_the_round_trip(family):
    config = read(
        family,
        own_key={"a": [1, None]},
        id2label={"0": "no", "1": "yes", "2": "maybe"},
        architectures=["SomeClass"],
        torch_dtype="float16",
        problem_type="regression",
    )
    assert type(config) is CLASSES[family][0]
    assert AutoConfig.from_json(config.to_json()) == config
    text = json.loads(config.to_json())
    assert text["own_key"] == {"a": [1, None]}
    assert text["label2id"] == {"no": 0, "yes": 1, "maybe": 2}
    assert text["dtype"] == text["torch_dtype"] == "float16"
    assert text["architectures"] == ["SomeClass"]


@pytest.mark.parametrize("family", CLASSES)
def test_every_default_is_that_of_the_reference(family):
    from flodl_hf.verify.oracle import STEMS, library

    reference = getattr(library(), f"{STEMS[family]}Config")(**CLASSES[family][1])
    config = read(family)
    for name, value in config.to_dict().items():
        if name in {"model_type", "architectures"}:
            continue
        theirs = getattr(reference, name, None)
        if theirs is not None:
            assert theirs == value or list(theirs) == value, name


@pytest.mark.parametrize("family", CLASSES)
def test_the_reference_reads_what_we_write(family, tmp_path):
    from flodl_hf.verify.oracle import library

    config = read(family, id2label={"0": "no", "1": "yes", "2": "maybe"})
    (tmp_path / "config.json").write_text(config.to_json())
    theirs = library().AutoConfig.from_pretrained(tmp_path)
    assert theirs.num_labels == 3
    assert theirs.id2label == {0: "no", 1: "yes", 2: "maybe"}


@pytest.mark.parametrize(
    ("family", "key"),
    [(family, key) for family, (_, sizes) in CLASSES.items() for key in sizes],
)
def test_a_size_that_is_missing_is_named(family, key):
    sizes = {name: value for name, value in CLASSES[family][1].items() if name != key}
    with pytest.raises(ConfigError, match=f"no {key}") as caught:
        AutoConfig.from_json(json.dumps({**sizes, "model_type": family}))
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", "16"),
        ("hidden_size", 16.0),
        ("hidden_size", True),
        ("hidden_size", 0),
        ("num_attention_heads", 3),
        ("layer_norm_eps", "1e-5"),
        ("tie_word_embeddings", 1),
        ("hidden_act", "gelu_10"),
        ("hidden_act", 7),
        ("id2label", {"0": "a", "2": "b"}),
        ("id2label", {"x": "a"}),
        ("id2label", ["a"]),
        ("id2label", {"0": 3}),
        ("num_labels", 0),
        ("problem_type", "guessing"),
        ("position_embedding_type", "relative_key"),
        ("is_decoder", True),
        ("add_cross_attention", True),
        ("architectures", "BertModel"),
        ("pad_token_id", 40),
        ("pad_token_id", -2),
        ("hidden_dropout_prob", 1.5),
        ("attention_probs_dropout_prob", float("nan")),
        ("classifier_dropout", -0.1),
        ("layer_norm_eps", -1e-5),
        ("layer_norm_eps", float("inf")),
        ("type_vocab_size", -1),
        ("initializer_range", -0.02),
    ],
)
def test_a_wrong_value_is_refused_with_its_key(key, value):
    with pytest.raises(ConfigError, match=key) as caught:
        read(**{key: value})
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        ("roberta", "pad_token_id", 19),
        ("xlm-roberta", "max_position_embeddings", 2),
        ("distilbert", "qa_dropout", 2),
        ("albert", "inner_group_num", 0),
        ("albert", "num_hidden_groups", 0),
        ("albert", "num_hidden_layers", 10**9),
        ("albert", "classifier_dropout_prob", 9),
        ("deberta-v2", "position_buckets", 1),
        ("deberta-v2", "attention_head_size", 0),
        ("deberta-v2", "embedding_size", 0),
        ("deberta-v2", "pooler_dropout", 7),
        ("deberta-v2", "conv_kernel_size", 2),
    ],
)
def test_what_no_layer_can_be_built_with_is_refused(family, key, value):
    named = "max_position_embeddings" if family == "roberta" else key
    with pytest.raises(ConfigError, match=named):
        read(family, **{key: value})


@pytest.mark.parametrize(
    ("family", "key"),
    [
        ("roberta", "num_hidden_layers"),
        ("distilbert", "n_layers"),
        ("albert", "inner_group_num"),
    ],
)
@pytest.mark.parametrize("loader", [AutoModel, AutoModelForMaskedLM])
def test_more_layers_than_any_file_holds_are_refused_at_once(saved, family, key, loader):
    folder, _ = saved(family, "mlm")
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: 10**12}))
    with pytest.raises(ConfigError, match="speaks of 1000000000000 layers"):
        loader.from_pretrained(folder)


@pytest.mark.parametrize("groups", [0, 3])
def test_groups_of_a_convolution_divide_the_width(groups):
    with pytest.raises(ConfigError, match="conv_groups"):
        read("deberta-v2", conv_kernel_size=3, conv_groups=groups)
    assert read("deberta-v2", conv_groups=groups).conv_kernel_size == 0  # not used


@pytest.mark.parametrize("text", ["", "[]", "{", '"bert"', "[" * 100_000, b"\xff\xfe\x80"])
def test_what_is_no_object_is_refused_with_where_it_is_from(text):
    with pytest.raises(ConfigError, match=r"some/config\.json"):
        AutoConfig.from_json(text, "some/config.json")


@pytest.mark.parametrize("kind", ["gpt2", None, 7, ["bert"]])
def test_other_families_are_refused_with_those_there_are(kind):
    with pytest.raises(UnsupportedModelTypeError, match="albert, bert, deberta-v2"):
        AutoConfig.from_json(json.dumps({**SIZES, "model_type": kind}))


def test_null_is_absent():
    assert read(layer_norm_eps=None, hidden_act=None) == read()
    with pytest.raises(ConfigError, match="no hidden_size"):
        read(hidden_size=None)


def test_activation_names_are_kept_as_they_are():
    assert read(hidden_act="gelu_pytorch_tanh").to_dict()["hidden_act"] == "gelu_pytorch_tanh"


@pytest.mark.parametrize("value", ["p2c|c2p", "P2C | C2P", ["p2c", "c2p"]])
def test_kinds_of_relative_attention_may_be_a_list_or_a_text(value):
    assert read("deberta-v2", pos_att_type=value).pos_att_type == ("p2c", "c2p")


def test_an_unknown_kind_of_relative_attention_is_refused():
    with pytest.raises(ConfigError, match="pos_att_type"):
        read("deberta-v2", pos_att_type="p2p")


def test_groups_of_albert_follow_the_formula():
    config = read("albert", num_hidden_layers=7, num_hidden_groups=3)
    assert [config.group_of(layer) for layer in range(7)] == [0, 0, 0, 1, 1, 2, 2]
