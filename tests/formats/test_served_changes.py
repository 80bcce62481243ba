"""Every change that suggestions make to a server, in the words of every engine, as flags and in files."""

from __future__ import annotations

import pytest

from gpulint.formats.core.registry import find
from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.rules.suggest.change import reread
from gpulint.settings.settings import Settings

MODEL = "meta-llama/Llama-3.1-8B"

TENSOR = {"parallelism.tensor": 2}
LENGTH = {"inference.max_model_len": 4096}
ROWS = {"inference.max_num_seqs": 16}
TOKENS = {"inference.max_num_batched_tokens": 2048}
SHARE = {"inference.gpu_memory_utilization": 0.8}
EAGER = {"inference.enforce_eager": True}
CACHE = {"inference.kv_cache_dtype": "fp8"}
EVERY = [TENSOR, LENGTH, ROWS, TOKENS, SHARE, EAGER, CACHE]

COMPOSE = f"""services:
  llm:
    image: vllm/vllm-openai:v0.11.0
    command: ["--model", "{MODEL}", "--max-num-seqs", "64"]
    deploy: {{resources: {{reservations: {{devices: [{{driver: nvidia, count: 2, capabilities: [gpu]}}]}}}}}}
"""

SERVERS = {
    "vllm": ("run.sh", f"vllm serve {MODEL}\n"),
    "vllm.yaml": ("vllm.yaml", f"model: {MODEL}\nmax-model-len: 8192\nmax-num-seqs: 64\n"),
    "sglang": ("run.sh", f"python -m sglang.launch_server --model-path {MODEL}\n"),
    "sglang.yaml": ("sglang.yaml", f"model-path: {MODEL}\ncontext-length: 8192\nmem-fraction-static: 0.9\n"),
    "tgi": ("run.sh", f"text-generation-launcher --model-id {MODEL}\n"),
    "lmdeploy": ("run.sh", f"lmdeploy serve api_server {MODEL} --tp 1\n"),
    "trtllm": ("run.sh", f"trtllm-serve {MODEL} --max_batch_size 64\n"),
    "trtllm.yaml": (
        "trtllm.yaml",
        f"model: {MODEL}\nmax_batch_size: 64\nkv_cache_config: {{enable_block_reuse: true}}\n",
    ),
    "llamafactory": ("infer.yaml", f"model_name_or_path: {MODEL}\ntemplate: llama3\ninfer_backend: vllm\n"),
    "compose": ("compose.yaml", COMPOSE),
}

UNSAID = {
    "llamafactory": [TENSOR],  # all GPUs that it sees
    "tgi": [SHARE],  # by default it takes what a prefill leaves
    "trtllm": [EAGER, CACHE],  # both stand in the file that `--extra_llm_api_options` names
    "trtllm.yaml": [EAGER],  # a null, which is no value to write
}


@pytest.mark.parametrize("changes", EVERY, ids=str)
@pytest.mark.parametrize("name", SERVERS)
def test_a_change_of_a_server_is_written(tmp_path, name, changes):
    file, text = SERVERS[name]
    path = tmp_path / file
    path.write_text(text)
    (opened,) = open_jobs(recognise_file(str(path)), Settings(root=str(tmp_path), gpu="h100", gpus=2)).opened
    form = find(opened.reading.format)
    edits = form.edits(opened.reading, changes)
    if changes in UNSAID.get(name, []):
        assert edits is None
        return
    assert edits
    after = reread(opened.reading, opened.project, edits)
    assert after is not None
    for field, value in changes.items():
        found = after.job.get(field)
        assert found == value or (value == "fp8" and found == "fp8_e4m3")
