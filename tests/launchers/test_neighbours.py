"""Which servers of one file are known to share a GPU."""

from __future__ import annotations

import pytest

from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.settings.settings import Settings

SERVE = "vllm serve Qwen/Qwen2.5-7B-Instruct --port 8000 --max-model-len 4096"
OTHER = "vllm serve Qwen/Qwen2.5-1.5B-Instruct --port 8001 --max-model-len 4096"


def shares(tmp_path, text, name="serve.sh"):
    """The part of a GPU that each server of a file takes with those beside it."""
    path = tmp_path / name
    path.write_text(text)
    found = open_jobs(recognise_file(str(path)), Settings(root=str(tmp_path))).opened
    return [(job.reading.launch or {}).get("gpu.shares", (0,))[0] for job in found]


@pytest.mark.parametrize(
    "script",
    [
        f"{SERVE} &\n{OTHER} &\nwait\n",
        f"{SERVE} &\nwhile ! curl -s localhost:8000; do\n  sleep 1\ndone\n{OTHER}\n",
        f'if [ -n "$1" ]; then\n  {SERVE} &\n  {OTHER} &\nfi\n',
    ],
)
def test_servers_left_running_share_the_gpu(tmp_path, script):
    assert shares(tmp_path, script) == [pytest.approx(1.84, abs=0.05)] * 2


@pytest.mark.parametrize(
    "script",
    [
        f"{SERVE} &\nkill $!\n{OTHER} &\n",
        f"{SERVE} &\nstop_server $!\n{OTHER} &\n",
        f"docker run vllm &\n{SERVE} &\ndocker rm -f x\n{OTHER} &\n",
        f"{SERVE} &\nwait\n{OTHER} &\n",
        f"{SERVE}\n{OTHER} &\n",
        f'if [ "$1" = a ]; then\n  {SERVE} &\nelse\n  {OTHER} &\nfi\n',
        f"case $1 in\n  a) {SERVE} & ;;\n  b) {OTHER} & ;;\nesac\n",
        f"first() {{\n  {SERVE} &\n}}\nsecond() {{\n  {OTHER} &\n}}\n",
        f"srun -n 1 {SERVE} &\nsrun -n 1 {OTHER} &\nwait\n",
    ],
)
def test_servers_that_may_run_one_after_the_other_share_nothing(tmp_path, script):
    assert shares(tmp_path, script) == [0, 0]


def service(name, model, extra):
    """A service of a compose file that serves a model."""
    return (
        f"  {name}:\n    image: vllm/vllm-openai:v0.11.0\n    command: --model {model} --max-model-len 4096\n"
        f"    shm_size: 8gb\n{extra}"
    )


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ("", "", True),
        ('    ports: ["8000:8000"]\n', '    ports: ["8001:8000"]\n', True),
        ('    ports: ["8000:8000"]\n', '    ports: [{target: 80, published: "8000"}]\n', False),
        ("", "    profiles: [large]\n", False),
        ("    profiles: [models]\n", "    profiles: [models]\n", False),
    ],
)
def test_services_share_a_gpu_where_all_of_them_start(tmp_path, first, second, together):
    text = (
        "services:\n"
        + service("a", "Qwen/Qwen2.5-7B-Instruct", first)
        + service("b", "Qwen/Qwen2.5-1.5B-Instruct", second)
    )
    assert [share > 1 for share in shares(tmp_path, text, "compose.yaml")] == [together] * 2
