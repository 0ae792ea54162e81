"""A small server that speaks the Hub's endpoints, and a child process that talks to it."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class FakeHub:
    """Repositories by name: revisions are names of commits, commits are files."""

    def __init__(self):
        self.revisions = {}
        self.commits = {}
        self.status = {}
        self.requests = []
        self.after = {}
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self):
                hub.answer(self, with_body=False)

            def do_GET(self):
                hub.answer(self, with_body=True)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def add(self, repo, files, revision="main"):
        digest = hashlib.sha1(json.dumps(sorted(files)).encode() + b"".join(files.values()))
        sha = digest.hexdigest()
        self.commits[sha] = files
        self.revisions.setdefault(repo, {})[revision] = sha
        return sha

    def add_folder(self, repo, folder, revision="main"):
        files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        return self.add(repo, files, revision)

    def answer(self, request, *, with_body):
        self.requests.append((request.command, request.path, request.headers.get("authorization")))
        parts = request.path.split("?")[0].strip("/").split("/")
        repo, revision, name = "/".join(parts[:2]), parts[3] if len(parts) > 3 else "", parts[-1]
        if repo in self.status:
            code, error = self.status[repo]
            return self.reply(request, code, {"X-Error-Code": error})
        if repo not in self.revisions:
            return self.reply(request, 404, {"X-Error-Code": "RepoNotFound"})
        sha = self.revisions[repo].get(revision, revision)
        if sha not in self.commits:
            return self.reply(request, 404, {"X-Error-Code": "RevisionNotFound"})
        content = self.commits[sha].get("/".join(parts[4:]))
        headers = {"X-Repo-Commit": sha}
        if content is None:
            return self.reply(request, 404, {**headers, "X-Error-Code": "EntryNotFound"})
        headers["ETag"] = f'"{hashlib.sha256(content).hexdigest()}"'
        self.reply(request, 200, headers, content, with_body=with_body)
        if with_body and name in self.after:
            self.after.pop(name)()
        return None

    @staticmethod
    def reply(request, code, headers, content=b"", *, with_body=True):
        request.send_response(code)
        for key, value in {**headers, "Content-Length": str(len(content))}.items():
            request.send_header(key, value)
        request.end_headers()
        if with_body:
            request.wfile.write(content)


@pytest.fixture
def hub():
    server = FakeHub()
    yield server
    server.close()


@pytest.fixture
def child(hub, tmp_path):
    """Return a function that runs a program against the server and returns what it prints."""

    def run(program, **environment):
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={
                **os.environ,
                "HF_ENDPOINT": hub.url,
                "HF_HOME": str(tmp_path / "home"),
                "HF_HUB_OFFLINE": "0",
                "HF_HUB_DISABLE_TELEMETRY": "1",
                "HF_HUB_DISABLE_XET": "1",
                **environment,
            },
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run
