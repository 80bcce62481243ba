"""Facts that were once read wrongly from published files, in small files of our own."""

from __future__ import annotations

import pytest

from gpulint.formats.core.format import NoJobError
from gpulint.run.check import check
from gpulint.settings.settings import Settings

MEGATRON = """MODEL_ARGS:
  --num-layers: 8
  --hidden-size: 512
  --num-attention-heads: 8
  --micro-batch-size: 1
  --seq-length: 512
  --max-position-embeddings: 512
  --tensor-model-parallel-size: 2
  --pipeline-model-parallel-size: 2
"""


@pytest.mark.parametrize(
    ("more", "gpus"),
    [
        ("", 4),
        ("  --num-experts: 8\n  --expert-model-parallel-size: 8\n", 32),
        ("  --num-experts: 8\n  --expert-model-parallel-size: 8\n  --expert-tensor-parallel-size: 1\n", 16),
    ],
)
def test_experts_need_whole_groups_of_gpus(opened, more, gpus):
    assert opened("megatron.yaml", MEGATRON + more).reading.job.hardware.gpus == gpus


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("  --vocab-file: data/vocab.txt\n", "a BERT or T5 model"),
        ("  --rollout-batch-size: 8\n", "reinforcement learning around Megatron-LM: gpulint does not know its phases"),
    ],
)
def test_what_is_no_pretraining_of_a_decoder(opened, more, reason):
    with pytest.raises(NoJobError, match=reason):
        opened("megatron.yaml", MEGATRON + more)
    words = "  --vocab-file: data/vocab.txt\n  --merge-file: data/merges.txt\n"
    assert opened("gpt.yaml", MEGATRON + words).reading.job.objective == "pretrain"


def test_the_script_of_the_qlora_paper(opened):
    job = opened(
        "train.sh",
        "python qlora.py --model_name_or_path huggyllama/llama-7b --bits 4 --double_quant --quant_type nf4 --bf16"
        " --lora_r 64 --source_max_len 16 --target_max_len 512 --per_device_train_batch_size 1",
    ).reading.job
    assert job.weights.quantization is not None
    assert job.weights.quantization.double_quant
    assert (job.method, job.sequence_length) == ("lora", 528)


def test_devices_of_the_node_that_starts_a_job_of_several(opened):
    text = (
        "export CUDA_VISIBLE_DEVICES=0,1,2,3\n"
        "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B"
        " trainer.n_gpus_per_node=4 trainer.nnodes={}\n"
    )
    assert opened("two.sh", text.format(2)).reading.job.hardware.gpus == 8
    assert opened("one.sh", text.format(1)).reading.job.hardware.gpus == 4


def test_ray_workers_of_llamafactory(opened):
    text = """
stage: sft
do_train: true
finetuning_type: lora
model_name_or_path: Qwen/Qwen2.5-0.5B
template: qwen
dataset: alpaca_en_demo
output_dir: out
ray_num_workers: 4
"""
    assert opened("sft.yaml", text).reading.job.hardware.gpus == 4


@pytest.mark.parametrize(("script", "method"), [("my_grpo.py", "lora"), ("examples/scripts/grpo.py", "full")])
def test_a_script_around_trl_needs_no_switch_for_lora(opened, script, method):
    flags = "--model_name_or_path Qwen/Qwen2.5-0.5B --num_generations 8 --lora_r 16 --per_device_train_batch_size 8"
    text = f"python {script} {flags}\n"
    assert opened("run.sh", text).reading.job.method == method


def test_a_slice_as_slurm_names_it(opened):
    text = "#!/bin/bash\n#SBATCH --gres=gpu:nvidia_h100_80gb_hbm3_3g.40gb:1\nvllm serve Qwen/Qwen2.5-0.5B\n"
    assert opened("serve.sbatch", text).gpu.name == "h100-80gb-mig-3g.40gb"


def test_a_server_of_another_device_is_no_job(tmp_path):
    path = tmp_path / "run.sh"
    path.write_text("docker run --runtime=habana opea/vllm-gaudi:1.22.0 vllm serve Qwen/Qwen2.5-0.5B\n")
    (file,) = check([str(path)], Settings(root=str(tmp_path), skip_unknown=True)).files
    assert file.reason == "its servers run on Intel Gaudi, which gpulint does not estimate"


@pytest.mark.parametrize(("storage", "dtype"), [("uint8", None), ("bfloat16", "bfloat16")])
def test_how_oumi_stores_packed_weights(opened, storage, dtype):
    text = f"""
model: {{model_name: Qwen/Qwen2.5-0.5B, torch_dtype_str: bfloat16}}
data: {{train: {{datasets: [{{dataset_name: yahma/alpaca-cleaned}}]}}}}
training: {{trainer_type: TRL_SFT, use_peft: true, output_dir: out}}
peft: {{q_lora: true, bnb_4bit_quant_type: nf4, bnb_4bit_quant_storage: {storage}}}
"""
    quantization = opened("train.yaml", text).reading.job.weights.quantization
    assert quantization is not None
    assert quantization.storage_dtype == dtype


def test_verl_may_reduce_gradients_in_each_micro_batch(opened):
    run = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B actor_rollout_ref.{}\n"
    job = opened("fsdp.sh", run.format("actor.strategy=fsdp2")).reading.job
    assert job.unstated == ["parallelism.fsdp.sync_each_batch"]
    assert opened("megatron.sh", run.format("actor.strategy=megatron")).reading.job.unstated == []
