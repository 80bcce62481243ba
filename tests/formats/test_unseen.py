"""Spellings that tools take, met in published files."""

from __future__ import annotations

import pytest

from gpulint.launchers.reading import UnrecognisedError, recognise_file
from gpulint.run.check import check
from gpulint.settings.settings import Settings


@pytest.fixture
def found(tmp_path):
    """The rules that fire on a file of that name and text."""

    def run(name: str, text: str) -> list[str]:
        path = tmp_path / name
        path.write_text(text)
        return [finding.rule for finding in check([str(path)]).findings]

    return run


def test_an_argument_may_be_written_with_dashes(found):
    text = "trl grpo --model-name-or-path Qwen/Qwen2.5-0.5B --dataset-name d --output-dir o --num-generations 8"
    assert "GPU002" not in found("run.sh", text)
    assert "GPU002" in found("typo.sh", text.replace("num-generations", "num-generatoins"))


def test_torchtitan_takes_words_with_commas_for_a_list(found):
    text = "torchrun -m torchtitan.train --model.name llama3 --model.flavor 8B --compile.components model,loss"
    assert "GPU004" not in found("run.sh", text)


def test_compilation_options_of_vllm_by_their_short_name(found):
    assert found("run.sh", "vllm serve Qwen/Qwen2.5-0.5B -O.cudagraph_mode=NONE") == []


@pytest.mark.parametrize(("number", "rules"), [("5e8", []), ("many", ["GPU004"])])
def test_numbers_of_a_deepspeed_config_in_yaml(found, number, rules):
    text = f"train_micro_batch_size_per_gpu: 1\nzero_optimization:\n  stage: 2\n  reduce_bucket_size: {number}\n"
    assert found("ds.yaml", text) == rules


def test_deeperspeed_checks_no_precision_section(found):
    text = """
num-layers: 12
hidden-size: 768
num-attention-heads: 12
seq-length: 2048
pipe-parallel-size: 1
train_micro_batch_size_per_gpu: 4
fp16: {enabled: true, type: bfloat16, min_loss_scale: 0.5}
zero_optimization: {stage: 1}
"""
    assert not {"GPU004", "GPU016"} & set(found("neox.yml", text))
    assert "GPU004" in found("typo.yml", text.replace("stage: 1", "stage: first"))


def test_three_dots_are_to_be_filled_in(found):
    text = "trl sft --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name d --output_dir o --learning_rate {}"
    assert "GPU004" not in found("a.sh", text.format("..."))
    assert "GPU004" in found("b.sh", text.format("much"))


def test_a_policy_of_its_own_with_a_base_model_is_no_axolotl_config(tmp_path):
    path = tmp_path / "router.yaml"
    path.write_text("base_model: microsoft/phi-2\nlearning_rate: 1.0e-5\nnum_epochs: 10\nbatch_size: 8\n")
    with pytest.raises(UnrecognisedError):
        recognise_file(str(path))


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        (
            "generate.sh",
            (
                "python qlora.py --model_name_or_path EleutherAI/pythia-70m --do_train False --do_predict True"
                " --per_device_eval_batch_size 4 --bf16 --gradient_accumulation_steps 1"
            ),
            "trains nothing: `do_train` is false, and it predicts",
        ),
        (
            "serve.sh",
            (
                "torchrun tools/run_text_generation_server.py --num-layers 2 --hidden-size 64 --num-attention-heads 4"
                " --micro-batch-size 1 --seq-length 128"
            ),
            "starts tools/run_text_generation_server.py, which gpulint does not know",
        ),
        (
            "eval.yaml",
            (
                "model: {model_name: HuggingFaceTB/SmolLM2-135M, shard_for_eval: true}\n"
                "generation: {batch_size: 3}\ntasks: [{evaluation_backend: lm_harness}]\n"
            ),
            "accelerate spreads its layers over all GPUs",
        ),
    ],
)
def test_what_trains_nothing_is_no_training(tmp_path, name, text, reason):
    path = tmp_path / name
    path.write_text(text)
    settings = Settings(root=str(tmp_path), gpus=4, skip_unknown=True)
    (file,) = check([str(path)], settings).files
    assert (file.status, file.reason) == ("skipped", reason)


def test_a_config_of_the_oumi_package_is_not_missed(found):
    assert found("job.sh", "oumi train -c oumi://configs/recipes/smollm/sft/135m/train.yaml") == []


def test_a_task_runs_the_server_of_its_image(opened):
    text = (
        "resources: {accelerators: 'H100:1', image_id: 'docker:vllm/vllm-openai:v0.11.0'}\n"
        "run: vllm serve Qwen/Qwen2.5-0.5B\n"
    )
    found = opened("task.yaml", text)
    assert found.reading.job.versions["vllm"] == "0.11.0"


def test_devices_that_only_the_run_knows_are_no_count(opened):
    text = (
        'DEVICES=""\ndeepspeed --include localhost:${DEVICES} train.py --model_name_or_path Qwen/Qwen2.5-0.5B'
        " --per_device_train_batch_size 1 --deepspeed zero3.json\n"
    )
    found = opened("run.sh", text)
    assert found.reading.job.hardware.gpus == 8
    assert found.reading.job.origins["hardware.gpus"].kind == "assumed"


def test_autos_that_axolotl_does_not_take_are_filled_in_by_another_program(found):
    one = "base_model: Qwen/Qwen2.5-0.5B\ndatasets: [{path: a, type: alpaca}]\nmicro_batch_size: 1\nfp16: auto\n"
    assert "GPU004" in found("one.yml", one)
    assert "GPU004" not in found("many.yml", one + "load_in_4bit: auto\nlora_modules_to_save: auto\n")


@pytest.mark.parametrize(("devices", "gpus"), [("0,1,2", 3), ("GPU-00d31b08-e71c,GPU-d2c7640f-db52", 2), ("$MINE", 1)])
def test_visible_devices_are_counted(opened, devices, gpus):
    found = opened("run.sh", f"CUDA_VISIBLE_DEVICES={devices} vllm serve Qwen/Qwen2.5-0.5B --tensor-parallel-size $N\n")
    assert found.reading.job.hardware.gpus == gpus


@pytest.mark.parametrize(("mode", "gpus", "stages"), [("", 2, 2), (" --split-mode none", 1, 1)])
def test_llama_cpp_spreads_layers_over_the_gpus_that_it_sees(opened, mode, gpus, stages):
    found = opened("run.sh", f"CUDA_VISIBLE_DEVICES=0,1 llama-server -m model.gguf{mode}\n")
    job = found.reading.job
    assert (job.hardware.gpus, job.parallelism.pipeline) == (gpus, stages)
