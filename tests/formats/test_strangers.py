"""Keys that a tool's release does not know: a fork's, a variable's, another release's."""

from __future__ import annotations

import pytest

from gpulint.run.check import check
from gpulint.settings.settings import Settings

SCRIPT = (
    "python3 -m verl.trainer.main_ppo data.train_files=a.parquet actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B {}\n"
)


def findings(tmp_path, name: str, text: str):
    path = tmp_path / name
    path.write_text(text)
    return check([str(path)], Settings(root=str(tmp_path), select=("GPU001", "GPU002", "GPU016"))).findings


def test_several_keys_of_another_release_are_told_once(tmp_path):
    found = findings(tmp_path, "run.sh", SCRIPT.format("max_turns=4 retriever.url=a data.one=1 data.two=2"))
    assert [item.rule for item in found] == ["GPU016"]
    assert found[0].notes == (
        (
            "also unknown: `retriever`, `data.one`, `data.two`; the file was probably written for another release or"
            " a fork"
        ),
    )


def test_two_keys_are_told_each(tmp_path):
    found = findings(tmp_path, "run.sh", SCRIPT.format("max_turns=4 retriever.url=a"))
    assert [item.rule for item in found] == ["GPU016", "GPU016"]


def test_a_project_with_the_source_of_the_tool_runs_that(tmp_path):
    (tmp_path / "verl" / "trainer").mkdir(parents=True)
    text = SCRIPT.format("max_turns=4 retriever.url=a data.one=1 trainer.total_epochz=1")
    assert [item.rule for item in findings(tmp_path, "run.sh", text)] == ["GPU002"]


def test_a_project_that_is_reached_over_a_link_is_the_same(tmp_path):
    (tmp_path / "real" / "verl" / "trainer").mkdir(parents=True)
    (tmp_path / "real" / "runs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "runs" / "run.sh").write_text(SCRIPT.format("max_turns=4"))
    path = str(tmp_path / "link" / "runs" / "run.sh")
    assert check([path], Settings(root=str(tmp_path / "real"), select=("GPU016",))).findings == []


def test_keys_that_the_source_in_the_project_does_not_name_are_told(tmp_path):
    module = tmp_path / "verl" / "trainer" / "loop.py"
    module.parent.mkdir(parents=True)
    module.write_text("def rollout(config):\n    return config.max_turns\n")
    (found,) = findings(tmp_path, "run.sh", SCRIPT.format("max_turns=4 max_rounds=4"))
    assert (found.rule, "max_rounds" in found.message) == ("GPU016", True)


@pytest.mark.parametrize(("value", "rules"), [("${policy.rate}", []), ("1e-6", ["GPU001"])])
def test_a_key_that_another_value_refers_to_is_a_variable(tmp_path, value, rules):
    text = f"""
policy:
  model_name: Qwen/Qwen2.5-0.5B
  train_global_batch_size: 8
  train_micro_batch_size: 1
  max_total_sequence_length: 512
  precision: bfloat16
  rate: 1e-6
  optimizer: {{name: torch.optim.AdamW, kwargs: {{lr: {value}}}}}
cluster: {{gpus_per_node: 1, num_nodes: 1}}
"""
    assert [item.rule for item in findings(tmp_path, "sft.yaml", text)] == rules


def test_the_options_of_a_script_around_megatron_are_its_own(tmp_path):
    run = """torchrun --nproc_per_node 1 {} --num-layers 2 --hidden-size 64 --num-attention-heads 4 \\
      --micro-batch-size 1 --seq-length 128 --hf-checkpoint a --ref-micro-batch-size 2
    """
    assert findings(tmp_path, "own.sh", run.format("train_async.py")) == []
    assert len(findings(tmp_path, "theirs.sh", run.format("pretrain_gpt.py"))) == 2
