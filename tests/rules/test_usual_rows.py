"""How severe a memory finding is where rows decide whose length is up to the data."""

from __future__ import annotations

import pytest

from gpulint.run.check import check
from gpulint.settings.settings import Settings

SFT = """
stage: sft
do_train: true
finetuning_type: lora
model_name_or_path: Qwen/Qwen2.5-0.5B
template: qwen
dataset: alpaca_en_demo
output_dir: out
bf16: true
cutoff_len: {length}
packing: {packing}
per_device_train_batch_size: {batch}
"""


def severities(tmp_path, text: str, name: str = "config.yaml") -> list[tuple[str, str]]:
    path = tmp_path / name
    path.write_text(text)
    found = check([str(path)], Settings(gpu="h100-80gb", gpus=1, root=str(tmp_path))).findings
    return [(item.severity, item.notes[-1] if item.notes else "") for item in found if item.rule.startswith("GPU11")]


PADDED = "batches are padded to their longest sample"


@pytest.mark.parametrize(
    ("length", "packing", "batch", "severity", "note"),
    [
        (8192, "true", 16, "error", ""),
        (8192, "false", 16, "info", PADDED),
        (8192, "false", 256, "info", PADDED),
        (2048, "false", 96, "info", PADDED),
    ],
)
def test_rows_of_any_length_make_no_error(tmp_path, length, packing, batch, severity, note):
    ((found, told),) = severities(tmp_path, SFT.format(length=length, packing=packing, batch=batch))
    assert found == severity
    assert note in told


def test_answers_are_as_long_as_the_policy_writes_them(tmp_path):
    text = (
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.max_prompt_length=512"
        " data.max_response_length=1024 actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B"
        " actor_rollout_ref.model.use_remove_padding={} actor_rollout_ref.model.enable_gradient_checkpointing=True"
        " actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=80 trainer.n_gpus_per_node=1\n"
    )
    ((severity, told),) = severities(tmp_path, text.format("True"), "run.sh")
    assert severity == "info"
    assert "as long as the policy writes them" in told
    assert [severity for severity, _ in severities(tmp_path, text.format("False"), "padded.sh")] == ["error"]
