"""Use of the installed wheel with one of its extras: ``python profiles.py hub|full|verify``.

A small server on the loopback stands for the Hub; nothing else is spoken to.
"""

import hashlib
import json
import os
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

PROFILE = sys.argv[1]
REVISION = "a" * 40


class Hub(BaseHTTPRequestHandler):
    """Answers the questions that a client of the Hub asks about one repository."""

    files: ClassVar[dict[str, bytes]] = {}
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self._answer(with_body=False)

    def do_GET(self):
        self._answer(with_body=True)

    def _answer(self, *, with_body):
        path = self.path.partition("?")[0]
        if path.startswith("/api/models/owner/name"):
            names = [{"rfilename": name} for name in self.files]
            about = {"id": "owner/name", "sha": REVISION, "siblings": names, "private": False}
            return self._send(json.dumps(about).encode(), "application/json", with_body=with_body)
        name = path.rpartition("/")[2]
        if "/resolve/" not in path or name not in self.files:
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        return self._send(self.files[name], "application/octet-stream", with_body=with_body)

    def _send(self, body, kind, *, with_body):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", REVISION)
        self.end_headers()
        if with_body:
            self.wfile.write(body)


def local_model(folder):
    """A tiny classifier in a folder, with a tokenizer where the library for one is there."""
    from flodl_hf import BertConfig, BertForSequenceClassification, save_safetensors_from

    config = BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=20,
    )
    model = BertForSequenceClassification.build(config).eval()
    save_safetensors_from(model.graph, folder / "model.safetensors")
    (folder / "config.json").write_text(model.config.to_json())
    if PROFILE != "hub":
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "quick", "fox"]
        from tokenizers import Tokenizer, models, pre_tokenizers, processors

        ids = {word: index for index, word in enumerate(words)}
        tokenizer = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        tokenizer.save(str(folder / "tokenizer.json"))
        plain = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]"}
        (folder / "tokenizer_config.json").write_text(json.dumps(plain))
    return model


def check(folder):
    """Load from the server that stands for the Hub, and do what the profile is for."""
    import torch

    from flodl_hf import AutoModelForSequenceClassification, HfTokenizer, MissingExtraError

    made = local_model(folder)
    Hub.files = {file.name: file.read_bytes() for file in folder.iterdir()}
    loaded = AutoModelForSequenceClassification.from_pretrained("owner/name")
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        assert torch.equal(loaded(ids), made(ids))
    if PROFILE == "hub":
        try:
            HfTokenizer.from_pretrained(folder)
        except MissingExtraError as error:
            assert "flodl-hf[full]" in str(error), error
        else:
            raise AssertionError("a tokenizer without the tokenizers library")
    else:
        (scores,) = loaded.predict(["a quick fox"])
        assert abs(sum(score for _, score in scores) - 1) < 1e-5, scores
    assert "transformers" not in sys.modules
    if PROFILE == "verify":
        from flodl_hf.verify.export import verify_export

        report = verify_export(folder, use_source=False)
        assert report.passed, report.checks


server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
threading.Thread(target=server.serve_forever, daemon=True).start()
with tempfile.TemporaryDirectory() as name:
    os.environ["HF_ENDPOINT"] = f"http://127.0.0.1:{server.server_address[1]}"
    os.environ["HF_HOME"] = f"{name}/hub"
    source = Path(name) / "source"
    source.mkdir()
    check(source)
server.shutdown()
server.server_close()
print(f"flodl-hf[{PROFILE}] works")
