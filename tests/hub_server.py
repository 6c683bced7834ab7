"""A server of this machine that speaks what BEIR's host and the model hub speak.

    with serving() as server:
        server.files["/BEIR/scifact.zip"] = b"..."
        server.add_hub("owner/name", {"corpus.jsonl": b"..."})
        server.faults["/BEIR/scifact.zip"] = [500, "cut"]   # first answers, then the file

Faults: a status, "cut" (half of the body), "damage" (other bytes of the same length), "stall"
(half of the body, then nothing until the server stops).
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parent.parent
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.etags: dict[str, str] = {}
        self.faults: dict[str, list[int | str]] = {}
        self.got: Counter[str] = Counter()
        self.stalling, self.stopped = threading.Event(), threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def add_hub(self, repo: str, files: dict[str, bytes], commit: str = COMMIT) -> None:
        info = {
            "id": repo,
            "sha": commit,
            "siblings": [{"rfilename": name} for name in files],
        }
        for place in ("", "/revision/main", f"/revision/{commit}"):
            self.files[f"/api/datasets/{repo}{place}"] = json.dumps(info).encode()
        for name, content in files.items():
            path = f"/datasets/{repo}/resolve/{commit}/{name}"
            self.files[path] = content
            # As the hub: sha256 of large files, git's own hash of the others.
            large = name.endswith((".parquet", ".gz"))
            blob = b"blob %d\0" % len(content) + content
            digest = hashlib.sha256(content) if large else hashlib.sha1(blob)
            self.etags[path] = digest.hexdigest()


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        path = unquote(self.path.partition("?")[0])
        faults = self.server.faults.get(path, []) if body else []
        fault = faults.pop(0) if faults else None
        content = self.server.files.get(path)
        if body:
            self.server.got[path] += 1
        if isinstance(fault, int) or content is None:
            self.refuse(fault if isinstance(fault, int) else 404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        if path in self.server.etags:
            self.send_header("ETag", f'"{self.server.etags[path]}"')
            self.send_header("X-Repo-Commit", path.split("/")[5])
        self.end_headers()
        if not body:
            return
        if fault == "damage":
            content = bytes(255 - byte for byte in content)
        elif fault in ("cut", "stall"):
            content = content[: len(content) // 2]
        self.wfile.write(content)
        self.wfile.flush()
        if fault == "stall":
            self.server.stalling.set()
            self.server.stopped.wait()
        if fault:
            self.close_connection = True

    def refuse(self, status: int) -> None:
        self.send_response(status)
        if status == 404 and self.path.startswith("/api/datasets/"):
            self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()


def online(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let huggingface_hub, which is offline in tests, ask this server."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_ENDPOINT", server.url)


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stopped.set()
        server.shutdown()
        server.server_close()
        thread.join()


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    """A fresh process, to be fed and killed."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -9
    for pipe in (process.stdin, process.stdout):
        pipe.close()
