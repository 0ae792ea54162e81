import flodl_hf


def test_every_name_is_there_sorted_and_lazy():
    assert flodl_hf.__all__ == sorted(flodl_hf.__all__)
    assert len(set(flodl_hf.__all__)) == len(flodl_hf.__all__)
    for name in flodl_hf.__all__:
        assert getattr(flodl_hf, name).__name__ == name
    assert set(flodl_hf.__all__) <= set(dir(flodl_hf))


def test_every_family_has_its_five_classes():
    for stem in ("Bert", "Roberta", "DistilBert", "XlmRoberta", "Albert", "DebertaV2"):
        for ending in (
            "Model",
            "ForSequenceClassification",
            "ForTokenClassification",
            "ForQuestionAnswering",
            "ForMaskedLM",
        ):
            assert f"{stem}{ending}" in flodl_hf.__all__


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(flodl_hf, "GPT2")
