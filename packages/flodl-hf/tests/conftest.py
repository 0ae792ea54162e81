"""Fixtures for all tests of flodl-hf: one thread, no network, nothing left behind."""

import os
import threading

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

KEPT_BY_TORCH = {"InductorSubproc", "subproc_worker_timer"}  # torch's compiler keeps its workers
SET_BY_OTHERS = {  # pytest; torch's compiler; torch as it first touches a GPU
    "PYTEST_CURRENT_TEST",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "TRITON_PTXAS_PATH",
    "CUDA_MODULE_LOADING",
}


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def no_leaks():
    """Fail a test that leaves a thread running or changes the environment."""
    threads, environment = set(threading.enumerate()), dict(os.environ)
    yield
    for thread in set(threading.enumerate()) - threads:
        thread.join(timeout=5)
    left = {thread.name for thread in set(threading.enumerate()) - threads if thread.is_alive()}
    left -= KEPT_BY_TORCH
    assert not left, f"threads left running: {sorted(left)}"
    changed = {
        name
        for name in environment.keys() | os.environ.keys()
        if environment.get(name) != os.environ.get(name) and name not in SET_BY_OTHERS
    }
    assert not changed, f"the test changed the environment: {sorted(changed)}"


@pytest.fixture(autouse=True)
def fresh_warnings():
    """Let each test see a warning that is logged once per process."""
    from flodl.core import log

    log._seen.clear()


@pytest.fixture
def saved(tmp_path_factory):
    """Return a function that lets the reference save a tiny model: its directory and the model."""
    from flodl_hf.verify.oracle import Sample, write_reference

    def save(family, head, *, seed=0, labels=3, **changes):
        folder = tmp_path_factory.mktemp(f"{family}-{head}")
        sample = Sample(family=family, head=head, changes=changes, seed=seed, labels=labels)
        return folder, write_reference(sample, folder)

    return save


WORDS = (
    "the a quick brown fox jumps over lazy dog paris london is was in on cat sat mat who what "
    "where city of lights and rain good bad film one two three four five ##s ##ing ##ed . , ? !"
).split()


@pytest.fixture(scope="session")
def small_tokenizer():
    """Return a function that makes a tokenizer of 99 tokens at most, with a family's specials."""
    import tokenizers

    def make(family="bert"):
        roberta = "roberta" in family
        named = (
            ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
            if roberta
            else ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        )
        vocabulary = {token: index for index, token in enumerate([*named, *WORDS])}
        unknown = "<unk>" if roberta else "[UNK]"
        first, last = ("<s>", "</s>") if roberta else ("[CLS]", "[SEP]")
        inner = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token=unknown))
        inner.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
        inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        inner.decoder = tokenizers.decoders.WordPiece(prefix="##")
        inner.add_special_tokens(named)
        second = f"{last}:0 {last}:0 $B:0" if roberta else f"{last}:0 $B:1"
        inner.post_processor = tokenizers.processors.TemplateProcessing(
            single=f"{first}:0 $A:0 {last}:0",
            pair=f"{first}:0 $A:0 {second} {last}:{0 if roberta else 1}",
            special_tokens=[(token, vocabulary[token]) for token in (first, last)],
        )
        return inner

    return make


@pytest.fixture
def talking(saved, small_tokenizer):
    """Return a function that saves a tiny model together with a tokenizer for it."""

    def save(family, head, **changes):
        folder, model = saved(family, head, **changes)
        small_tokenizer(family).save(str(folder / "tokenizer.json"))
        return folder, model

    return save
