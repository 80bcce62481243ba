"""`gpulint models add`, against a small hub on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gpulint.models.resolve import forget, resolve

pytest.importorskip("huggingface_hub")

CONFIG = {
    "model_type": "llama", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "vocab_size": 11,
}  # fmt: skip
ANSWERS = {
    "/org/tiny/resolve/main/config.json": (200, CONFIG, ""),
    "/org/tiny/resolve/wide/config.json": (200, {**CONFIG, "hidden_size": 16}, ""),
    "/org/odd/resolve/main/config.json": (200, {"architectures": ["Odd"]}, ""),
    "/org/gated/resolve/main/config.json": (403, {}, "GatedRepo"),
    "/org/bare/resolve/main/config.json": (404, {}, "EntryNotFound"),
    "/org/tiny/resolve/gone/config.json": (404, {}, "RevisionNotFound"),
}


class _Hub(BaseHTTPRequestHandler):
    """The part of the hub's protocol that a download of one file speaks."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        status, config, code = ANSWERS.get(self.path, (404, {}, "RepoNotFound"))
        data = json.dumps(config).encode()
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def add(tmp_path):
    """`gpulint models add` in a project of its own, and how it ended."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    home = {"HF_HOME": str(tmp_path / "home"), "NO_PROXY": "*", "HF_HUB_DISABLE_TELEMETRY": "1"}
    environment = {**os.environ, **home, "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}"}

    def run(*arguments, endpoint=None):
        command = [sys.executable, "-m", "gpulint", "models", "add", *arguments]
        asked = environment | ({"HF_ENDPOINT": endpoint} if endpoint else {})
        return subprocess.run(command, cwd=project, env=asked, capture_output=True, text=True, check=False)

    run.project = project
    yield run
    server.shutdown()
    server.server_close()


def test_the_config_lands_in_the_project_and_counts_from_then_on(add):
    done = add("org/tiny")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "wrote models/org/tiny/config.json: llama, 1,496 parameters\n"
    assert json.loads((add.project / "models/org/tiny/config.json").read_text()) == CONFIG
    forget()
    assert resolve("org/tiny", str(add.project), str(add.project)).parameters == 1496


def test_a_second_time_brings_it_up_to_date(add):
    add("org/tiny")
    assert add("org/tiny", "--revision", "wide").returncode == 0
    assert json.loads((add.project / "models/org/tiny/config.json").read_text())["hidden_size"] == 16


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["org/gated"], "org/gated is gated"),
        (["org/nowhere"], "org/nowhere is not on the Hub"),
        (["org/bare"], "org/bare has no config.json"),
        (["org/tiny", "--revision", "gone"], "org/tiny has no revision gone"),
        (["../up/there"], "is not a model id"),
        (["org/odd"], "wrote models/org/odd/config.json, but it is not usable"),
    ],
)
def test_what_cannot_be_fetched_is_told_in_a_line(add, arguments, told):
    done = add(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gpulint: ")
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_hub_that_does_not_answer(add):
    done = add("org/tiny", endpoint="http://127.0.0.1:1")
    assert done.returncode == 2
    assert done.stderr.startswith("gpulint: org/tiny: cannot reach the Hub (")
    assert done.stderr.count("\n") == 1
    assert not (add.project / "models").exists()
