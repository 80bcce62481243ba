"""How long one command takes from a cold start: `gpulint check` beside Python, its parsers, and its peers.

    python benchmarks/startup.py                 # gpulint, bare Python, click + PyYAML
    python benchmarks/startup.py --peers DIR     # also fitcheck-llm and accelerate, from a virtual environment in DIR
                                                 # (made with pip when it is not there; accelerate brings torch)

All commands of one round run one after the other, so that a slow moment of the machine meets all of them; the
median over rounds and its ratio to `gpulint check` are printed. The peers ask the Hugging Face hub for the
model's config.json; a stand-in hub on this machine answers, so that no network is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MODEL = "NousResearch/Meta-Llama-3-8B"
CONFIG: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
PARSE = "import click, json, yaml; yaml.load(open"

LINES = 100
"""Lines of the config that is checked: keys that count, then comments."""


class Hub(BaseHTTPRequestHandler):
    """Just enough of the hub's API: a model's metadata and its config.json."""

    def do_HEAD(self) -> None:
        """Answer like GET, without a body."""
        self._answer(body=False)

    def do_GET(self) -> None:
        """Answer metadata or the config; 404 for any other file."""
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        content: dict[str, object] = CONFIG
        if self.path.startswith("/api/models/"):
            content = {"id": MODEL, "modelId": MODEL, "sha": "0" * 40, "library_name": "transformers", "config": CONFIG}
        elif not self.path.endswith("/config.json"):
            self.send_error(404)
            return
        text = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.send_header("ETag", '"0123456789"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.end_headers()
        if body:
            self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


def example_config() -> str:
    """An Axolotl config of `LINES` lines."""
    text = Path(__file__).parent.parent.joinpath("examples", "llama3-8b-qlora.yaml").read_text(encoding="utf-8")
    missing = LINES - len(text.splitlines())
    return text + "".join(f"# note {number}\n" for number in range(missing))


def peers_in(folder: Path) -> Path:
    """The peers' virtual environment, made when it is missing."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        packages = ["torch==2.13.0", "transformers", "accelerate", "fitcheck-llm"]
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
    return folder / "bin"


def commands(config: str, peers: Path | None) -> dict[str, list[str]]:
    """What is timed, by name."""
    python = sys.executable
    timed = {
        "gpulint check": [python, "-m", "gpulint", "check", "--isolated", config],
        "python -c pass": [python, "-c", "pass"],
        "python, click and PyYAML": [python, "-c", f"{PARSE}({config!r}), yaml.CSafeLoader)"],
    }
    if peers is not None:
        timed["fitcheck-llm"] = [str(peers / "fitcheck"), MODEL, "--qlora", "--gpu", "4090", "--json"]
        timed["accelerate estimate-memory"] = [str(peers / "accelerate"), "estimate-memory", MODEL]
    return timed


def measure(timed: dict[str, list[str]], rounds: int, environment: dict[str, str]) -> dict[str, list[float]]:
    """Wall seconds by command, one warm-up round left out."""
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    for number in range(rounds + 1):
        for name, command in timed.items():
            start = time.perf_counter()
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            taken = time.perf_counter() - start
            if done.returncode not in (0, 1):
                raise SystemExit(f"{name} failed: {done.stderr.strip()[-500:]}")
            if number:
                seconds[name].append(taken)
    return seconds


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--peers", type=Path)
    options = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "train.yaml")
        config.write_text(example_config(), encoding="utf-8")
        environment = {
            **os.environ,
            "HF_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}",
            "HF_HOME": folder,
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        timed = commands(str(config), peers_in(options.peers) if options.peers else None)
        seconds = measure(timed, options.rounds, environment)
    server.shutdown()
    base = statistics.median(seconds["gpulint check"])
    print(f"{'command':<28} {'median ms':>9} {'min':>7} {'max':>7} {'ratio':>7}   ({options.rounds} rounds)")
    for name, times in seconds.items():
        median = statistics.median(times)
        low, high = min(times) * 1000, max(times) * 1000
        print(f"{name:<28} {median * 1000:>9.0f} {low:>7.0f} {high:>7.0f} {median / base:>7.2f}")


if __name__ == "__main__":
    main()
