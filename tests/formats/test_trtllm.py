"""TensorRT-LLM's flags and the file of its LLM API."""

import pytest

from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.settings.settings import Settings


def reading(tmp_path, flags):
    script = tmp_path / "run.sh"
    script.write_text(f"trtllm-serve meta-llama/Llama-3.1-8B {flags}\n")
    (opened,) = open_jobs(recognise_file(str(script)), Settings(root=str(tmp_path))).opened
    return opened.reading


@pytest.mark.parametrize(("flags", "dtype"), [("", "auto"), ("--kv_cache_dtype fp8", "fp8")])
def test_the_cache_s_dtype_is_a_flag(tmp_path, flags, dtype):
    assert reading(tmp_path, flags).job.inference.kv_cache_dtype == dtype


def test_flags_of_the_stability_reference_are_known(tmp_path):
    flags = "--served_model_name x --num_serve_frontends 2 --generation-config auto --hf_revision main --no-telemetry"
    assert reading(tmp_path, flags).problems == []


def test_other_flags_are_not(tmp_path):
    (problem,) = reading(tmp_path, "--max_batch_sizes 4").problems
    assert (problem.kind, problem.values["suggestion"]) == ("unknown-key", "max_batch_size")


@pytest.fixture
def trtllm(bench):
    return bench("trtllm")


def test_keys_of_a_section_that_an_older_release_had(trtllm):
    text = "kv_cache_config: {free_gpu_memory_fraction: 0.8, onboard_blocks: false, onboard_block: 1}\n"
    found = [(item.kind, item.key) for item in trtllm.read(text).problems]
    assert ("unknown-key", "kv_cache_config.onboard_block") in found
    assert ("unknown-key", "kv_cache_config.onboard_blocks") not in found
