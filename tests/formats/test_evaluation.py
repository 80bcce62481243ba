"""What the readers say of evaluations behind Liger's fused loss, and of metrics."""

from __future__ import annotations

import pytest

PLAIN = """\
model_name_or_path: org/model
train_folder: data
output_dir: out
learning_rate: 2.0e-5
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
use_liger_kernel: true
eval_strategy: steps
"""
TRL = """\
model_name_or_path: Qwen/Qwen2.5-0.5B
dataset_name: a/b
learning_rate: 2e-4
use_liger_kernel: true
eval_strategy: steps
"""
AXOLOTL = """\
base_model: meta-llama/Llama-3.1-8B
datasets: []
micro_batch_size: 2
plugins: [axolotl.integrations.liger.LigerPlugin]
liger_fused_linear_cross_entropy: true
val_set_size: 0.1
eval_steps: 10
"""
FACTORY = """\
model_name_or_path: meta-llama/Llama-3.1-8B
stage: sft
do_train: true
dataset: alpaca
template: llama3
output_dir: saves/x
val_size: 0.1
eval_strategy: steps
enable_liger_kernel: true
"""
OUMI = """\
model: {model_name: Qwen/Qwen2.5-7B, model_max_length: 4096, enable_liger_kernel: true}
training: {trainer_type: NAME, per_device_train_batch_size: 2, eval_strategy: steps}
"""


@pytest.fixture
def stated(bench, monkeypatch):
    """The evaluation of a text, with the releases that its project states."""

    def read(name, text, **versions):
        found = bench(name)
        from gpulint.formats.core.format import Project
        from gpulint.source.read import parse

        project = Project(found.root, None, None, None, lambda *_: None, versions=versions)
        return found.format.read(parse(text, "config.yaml", "yaml"), project).job

    return read


@pytest.mark.parametrize(("version", "unfused"), [("5.14.1", True), ("5.15.0", False), ("4.57.1", True)])
def test_the_trainer_asks_ligers_models_to_skip_logits_since_5_15(stated, version, unfused):
    job = stated("hf_trainer", PLAIN, transformers=version)
    assert (job.loss.kernel, job.evaluation.unfused) == ("liger", unfused)


@pytest.mark.parametrize(("version", "unfused"), [("0.28.0", True), ("0.29.0", False)])
def test_so_does_trls_trainer_since_0_29(stated, version, unfused):
    job = stated("hf_trainer", TRL, trl=version, transformers="4.57.1")
    assert (job.loss.kernel, job.evaluation.unfused) == ("liger", unfused)


def test_trls_tiles_serve_an_evaluation_too(stated):
    job = stated("hf_trainer", TRL)
    assert (job.loss.kernel, job.evaluation.unfused) == ("chunked", False)


def test_a_metric_of_the_scripts_own_may_keep_the_logits(stated):
    job = stated("hf_trainer", PLAIN + "metric_for_best_model: eval_f1\n")
    assert (job.evaluation.keeps_logits, job.evaluation.unfused) == (False, True)
    assert job.unstated == ["evaluation.keeps_logits"]
    for text in ("metric_for_best_model: eval_loss\n", "metric_for_best_model: bleu\npredict_with_generate: true\n"):
        job = stated("hf_trainer", PLAIN + text)
        assert (job.unstated, job.evaluation.unfused) == ([], False)


def test_no_evaluation_makes_no_logits(stated):
    text = PLAIN.replace("eval_strategy: steps\n", "")
    assert stated("hf_trainer", text, transformers="4.57.1").evaluation.unfused is False


def test_axolotl_and_llama_factory_put_liger_in_behind_the_trainers_back(stated):
    for name, text in (("axolotl", AXOLOTL), ("llamafactory", FACTORY)):
        job = stated(name, text)
        assert (job.loss.kernel, job.evaluation.unfused) == ("liger", True)
        assert job.origins["evaluation.unfused"].kind == "derived"
    cut = AXOLOTL.replace("liger_fused_linear_cross_entropy", "liger_rms_norm")
    assert stated("axolotl", cut).evaluation.unfused is False


@pytest.mark.parametrize(("trainer", "unfused"), [("TRL_SFT", False), ("HF", True)])
def test_oumi_tells_the_trainer_of_liger(stated, trainer, unfused):
    assert stated("oumi", OUMI.replace("NAME", trainer)).evaluation.unfused is unfused


def test_oumis_metrics_get_the_logits(stated):
    text = OUMI.replace("NAME", "HF").replace("eval_strategy: steps", "eval_strategy: steps, metrics_function: f1")
    job = stated("oumi", text)
    assert job.evaluation.keeps_logits
    assert job.origins["evaluation.keeps_logits"].key == "training.metrics_function"


@pytest.mark.parametrize(("version", "kept"), [("4.57.6", True), ("5.0.0", False)])
def test_evaluation_passes_keep_keys_and_values_before_transformers_5(stated, version, kept):
    """TRL turns them off beside checkpointing; what a script that is not known does is not known either."""
    plain = TRL + "gradient_checkpointing: false\n"
    job = stated("hf_trainer", plain, transformers=version)
    assert (job.activation_checkpointing, job.evaluation.caches) == ("none", kept)
    assert not stated("hf_trainer", plain.replace("false", "true"), transformers=version).evaluation.caches
    assert not stated("hf_trainer", plain.replace("eval_strategy: steps\n", ""), transformers=version).evaluation.caches
    script = stated("hf_trainer", PLAIN, transformers=version)
    assert (script.evaluation.caches, script.unstated) == (False, ["evaluation.caches"] if kept else [])
