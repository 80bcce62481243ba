"""FSDP's offload to main memory, written where a run says that it is sharded."""

import pytest

OFFLOAD = {"parallelism.fsdp.offload": True}
MODEL = "Qwen/Qwen2.5-0.5B"
TRL = f"model_name_or_path: {MODEL}\nlearning_rate: 1e-5\noutput_dir: out\ngradient_accumulation_steps: 4\n"
AXOLOTL = f"base_model: {MODEL}\ndatasets: [{{path: a/b, type: alpaca}}]\nsequence_len: 512\nbf16: true\n"
FACTORY = (
    f"model_name_or_path: {MODEL}\nstage: sft\ndo_train: true\nfinetuning_type: full\nbf16: true\ncutoff_len: 512\n"
    "template: qwen\n"
)
ACCELERATE = "compute_environment: LOCAL_MACHINE\nnum_processes: 8\nmixed_precision: bf16\n"


@pytest.mark.parametrize(
    ("form", "text", "written"),
    [
        ("hf_trainer", TRL + "fsdp: full_shard auto_wrap\n", "fsdp: full_shard auto_wrap offload"),
        ("hf_trainer", TRL + "fsdp: true\nfsdp_config: {version: 2}\n", "cpu_offload: true"),
        ("hf_trainer", TRL + "fsdp: true\n", "cpu_offload: true"),
        ("hf_trainer", TRL + "fsdp: true\nfsdp_config: {fsdp_version: 2}\n", "fsdp_cpu_offload: true"),
        ("llamafactory", FACTORY + "fsdp: full_shard auto_wrap\n", "fsdp: full_shard auto_wrap offload"),
        (
            "axolotl",
            AXOLOTL + "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
            "  offload_params: true",
        ),
        (
            "axolotl",
            AXOLOTL + "fsdp: [full_shard, auto_wrap]\nfsdp_config:\n  fsdp_offload_params: false\n",
            "  fsdp_offload_params: true",
        ),
        (
            "accelerate",
            ACCELERATE + "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n",
            "  fsdp_offload_params: true",
        ),
    ],
)
def test_offload_is_written_and_read_back(bench, form, text, written):
    after, job = bench(form).change(text, OFFLOAD, gpus=8)
    assert written in after
    assert job.parallelism.fsdp.offload is True


def test_before_5_10_offload_is_a_word_of_fsdp(bench):
    text = TRL + "fsdp: full_shard auto_wrap\nfsdp_config: {min_num_params: 1000}\n"
    after, job = bench("hf_trainer").change(text, OFFLOAD, gpus=8, versions={"transformers": "4.57.1"})
    assert "fsdp: full_shard auto_wrap offload" in after
    assert job.parallelism.fsdp.offload is True


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("hf_trainer", TRL),
        ("llamafactory", FACTORY),
        ("axolotl", AXOLOTL),
        ("accelerate", ACCELERATE + "distributed_type: MULTI_GPU\n"),
    ],
)
def test_without_fsdp_there_is_nothing_to_offload(bench, form, text):
    assert bench(form).change(text, OFFLOAD, gpus=8) is None
