"""Use of the installed wheel in the offline profile: a local model, no library of the Hub."""

import sys
import tempfile
from pathlib import Path

import torch

from flodl_hf import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    HfTokenizer,
    MissingExtraError,
    load_extra,
    save_safetensors_from,
)

for library, extra in (("huggingface_hub", "hub"), ("tokenizers", "full")):
    try:
        load_extra(library, extra)
    except MissingExtraError as error:
        assert f"flodl-hf[{extra}]" in str(error), error
    else:
        raise AssertionError(f"{library} is installed without the [{extra}] extra")

config = BertConfig(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=8,
    max_position_embeddings=20,
)
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    made = BertForSequenceClassification.build(config).eval()
    save_safetensors_from(made.graph, folder / "model.safetensors")
    (folder / "config.json").write_text(made.config.to_json())
    loaded = AutoModelForSequenceClassification.from_pretrained(folder)
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        assert torch.equal(loaded(ids), made(ids))
    try:
        HfTokenizer.from_pretrained(folder)
    except MissingExtraError as error:
        assert "flodl-hf[full]" in str(error), error
    else:
        raise AssertionError("a tokenizer without the tokenizers library")
    try:
        AutoModelForSequenceClassification.from_pretrained("owner/name")
    except MissingExtraError as error:
        assert "flodl-hf[hub]" in str(error), error
    else:
        raise AssertionError("the Hub without its library")
names = ("huggingface_hub", "tokenizers", "transformers", "httpx2")
found = [name for name in names if sys.modules.get(name) is not None]
assert not found, found
print("flodl-hf works alone")
