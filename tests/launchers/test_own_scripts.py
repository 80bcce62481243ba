"""Scripts that no table names, judged by the config file that a flag of theirs names."""

from __future__ import annotations

TITAN = """\
[model]
name = "llama3"
flavor = "8B"
[training]
batch_size = 1
seq_len = 8192
"""
STUDIO = """\
llm_backbone: h2oai/h2ogpt-4096-llama2-7b
problem_type: text_causal_language_modeling
architecture:
  backbone_dtype: int4
training:
  batch_size: 3
  lora: true
"""


def test_torchtitan_is_known_by_the_flag_of_its_config(jobs_of):
    command = "torchrun --nproc_per_node=8 train.py --job.config_file c.toml --training.seq_len 4096\n"
    (job,) = jobs_of(command, "run.sh", {"c.toml": TITAN})
    assert (job.framework, job.sequence_length, job.hardware.gpus) == ("torchtitan", 4096, 8)


def test_h2o_llm_studio_is_known_by_the_file_it_is_given(jobs_of):
    (job,) = jobs_of("python train.py -Y c.yaml\n", "run.sh", {"c.yaml": STUDIO})
    assert (job.model, job.method, job.micro_batch_size) == ("h2oai/h2ogpt-4096-llama2-7b", "lora", 3)


def test_a_script_with_flags_of_its_own_alone_is_not_known(launched):
    found = launched("python train.py --job.file c.toml\n", "run.sh", {"c.toml": TITAN})
    assert not found.opened
    assert "train.py" in found.reason
