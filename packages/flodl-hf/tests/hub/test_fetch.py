"""Loading from the Hub, against a server on this machine."""

import pytest
import torch

from flodl_hf import HfError
from flodl_hf.hub.fetch import HubOptions, locate

pytestmark = pytest.mark.multiproc

LOAD = """
import logging; logging.disable(logging.WARNING)
from flodl_hf import AutoModelForSequenceClassification as Auto
head = Auto.from_pretrained({id!r}, {options})
print(head.load_report.revision, head.tokenizer is not None, head.labels)
"""
FAIL = """
import logging; logging.disable(logging.WARNING)
from flodl_hf import AutoModelForSequenceClassification as Auto, HfError
try:
    Auto.from_pretrained({id!r}, {options})
except HfError as error:
    print(type(error).__name__, error)
"""


def test_a_model_is_fetched_once_and_then_needs_no_server(hub, child, talking):
    folder, _ = talking("bert", "seqcls")
    sha = hub.add_folder("me/model", folder)
    first = child(LOAD.format(id="me/model", options=""))
    assert first == f"{sha} True ('LABEL_0', 'LABEL_1', 'LABEL_2')"
    fetched = {path.split("/")[-1] for method, path, _ in hub.requests if method == "GET"}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= fetched
    assert not any("generation" in name or ".bin" in name for name in fetched)
    hub.close()
    assert child(LOAD.format(id="me/model", options="local_files_only=True")) == first
    assert child(LOAD.format(id="me/model", options=""), HF_HUB_OFFLINE="1") == first
    refused = child(FAIL.format(id="me/other", options="local_files_only=True"))
    assert refused.startswith("OfflineError me/other at main: config.json is not in the cache")


def test_offline_makes_no_request(hub, child, talking):
    folder, _ = talking("bert", "seqcls")
    hub.add_folder("me/model", folder)
    child(LOAD.format(id="me/model", options=""))
    hub.requests.clear()
    block = (
        "import socket\n"
        "def refuse(*a, **k): raise AssertionError('a socket was opened')\n"
        "socket.socket.connect = refuse\n"
    )
    assert "True" in child(block + LOAD.format(id="me/model", options=""), HF_HUB_OFFLINE="1")
    assert hub.requests == []


@pytest.mark.slow
def test_all_files_come_from_one_commit_though_the_branch_moves(hub, child, talking):
    old, _ = talking("bert", "seqcls", labels=3)
    new, _ = talking("bert", "seqcls", labels=5, seed=1)
    sha = hub.add_folder("me/model", old)
    hub.after["config.json"] = lambda: hub.add_folder("me/model", new)
    assert child(LOAD.format(id="me/model", options="")).startswith(f"{sha} True ('LABEL_0', 'L")
    assert "LABEL_4" in child(LOAD.format(id="me/model", options=""))


@pytest.mark.slow
def test_a_revision_is_a_branch_a_tag_or_a_commit(hub, child, talking):
    one, _ = talking("bert", "seqcls", labels=2)
    two, _ = talking("bert", "seqcls", labels=4, seed=1)
    sha_one = hub.add_folder("me/model", one)
    sha_two = hub.add_folder("me/model", two, revision="v2")
    assert child(LOAD.format(id="me/model", options="revision='v2'")).startswith(sha_two)
    options = f"revision={sha_one!r}"
    assert child(LOAD.format(id="me/model", options=options)).startswith(sha_one)
    missing = child(FAIL.format(id="me/model", options="revision='nope'"))
    assert missing.startswith("RepoNotFoundError")
    assert "nope" in missing


REFUSALS = {
    "me/gated": (403, "GatedRepo", "access is refused"),
    "me/locked": (401, "GatedRepo", "access is refused"),
    "me/gone": (404, "RepoNotFound", "no such repository"),
}
FETCH = """
from flodl_hf.errors import HfError
from flodl_hf.hub.fetch import HubOptions, locate
for name in {names!r}:
    try:
        locate(name, HubOptions(token={token!r})).require("config.json")
    except HfError as error:
        print(type(error).__name__, error)
"""


def test_refusals_say_what_to_do_and_never_the_token(hub, child):
    hub.status = {repo: (code, error) for repo, (code, error, _) in REFUSALS.items()}
    text = child(FETCH.format(names=list(REFUSALS), token="hf_secretsecretsecret"))
    for repo, (_, _, said) in REFUSALS.items():
        assert any(repo in line and said in line for line in text.splitlines()), repo
    assert "hf_secret" not in text
    assert any(auth == "Bearer hf_secretsecretsecret" for _, _, auth in hub.requests)


@pytest.mark.slow
def test_a_hub_that_cannot_be_reached_is_not_called_offline(hub, child):
    hub.close()
    text = child(FETCH.format(names=["me/model"], token=None))
    assert text.startswith("HubError me/model at main")
    assert "HF_ENDPOINT" in text


@pytest.mark.slow
def test_a_repository_with_a_pickle_names_the_command_and_loads_once_converted(
    hub, child, talking, tmp_path
):
    folder, model = talking("bert", "seqcls")
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    sha = hub.add_folder("me/old", folder)
    text = child(FAIL.format(id="me/old", options=""))
    assert text.startswith("NoSafetensorsError")
    assert f"fdl flodl-hf convert me/old --revision {sha}" in text
    converted = child(
        "from flodl_hf.commands import main; import sys; "
        f"sys.exit(main(['convert', 'me/old', '--revision', {sha!r}]))"
    )
    assert "model.safetensors" in converted
    assert (tmp_path / "home/flodl-converted/me/old" / sha / "provenance.json").is_file()
    assert child(LOAD.format(id="me/old", options="")).startswith(f"{sha} True")


@pytest.mark.slow
def test_a_folder_of_a_repository_has_weights_of_its_own(hub, child, talking, tmp_path):
    files = {}
    for place, labels in (("", 3), ("other/", 5)):
        folder, model = talking("bert", "seqcls", labels=labels)
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
        files |= {f"{place}{path.name}": path.read_bytes() for path in folder.iterdir()}
    sha = hub.add("me/old", files)
    convert = "from flodl_hf.commands import main; import sys; sys.exit(main({words}))"
    child(convert.format(words=["convert", "me/old"]))
    other = "subfolder='other'"
    text = child(FAIL.format(id="me/old", options=other))
    assert f"fdl flodl-hf convert me/old --revision {sha} --subfolder other" in text
    child(convert.format(words=["convert", "me/old", "--subfolder", "other"]))
    assert "LABEL_4" in child(LOAD.format(id="me/old", options=other))
    assert "LABEL_4" not in child(LOAD.format(id="me/old", options=""))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bert-base-uncased", "google-bert/bert-base-uncased"),
        ("roberta-base", "FacebookAI/roberta-base"),
        ("xlm-roberta-large", "FacebookAI/xlm-roberta-large"),
        ("roberta-large-mnli", "FacebookAI/roberta-large-mnli"),
        ("distilbert-base-cased", "distilbert/distilbert-base-cased"),
        ("albert-base-v2", "albert/albert-base-v2"),
        ("no/such/repo", "owner/name"),
        ("../x", "owner/name"),
        ("a/..", "owner/name"),
        ("own er/x", "owner/name"),
        ("", "owner/name"),
        ("nothing", "owner/name"),
    ],
)
def test_a_name_without_an_owner_is_refused_with_a_suggestion(name, said, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")  # where no folder bears one of these names
    with pytest.raises(HfError, match=said):
        locate(name, HubOptions())
