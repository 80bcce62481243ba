import pytest

from gpulint.formats.core.arguments import Arguments
from gpulint.formats.core.format import JobBuilder
from gpulint.formats.hf_trainer.trl import set_objective
from gpulint.source.read import parse

TRL = "model_name_or_path: a/b\nlearning_rate: 1e-6\n"


def objective(text, path="config.yaml"):
    document = parse(TRL + text, path, "yaml")
    builder = JobBuilder(document, "trl 1.16.0")
    set_objective(builder, Arguments(document.root))
    return builder.job.objective, builder.job.origins["objective"]


@pytest.fixture
def hf(bench):
    return bench("hf_trainer")


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("num_generations: 8\n", "grpo"),
        ("max_completion_length: 512\nbeta: 0.04\n", "grpo"),
        ("rloo_k: 2\nnum_generations: 2\n", "rloo"),
        ("beta: 0.1\nmax_prompt_length: 512\n", "dpo"),
        ("precompute_ref_log_probs: true\n", "dpo"),
        ("loss_type: sigmoid\nbeta: 0.1\n", "dpo"),
        ("loss_type: [sigmoid, bco_pair]\n", "dpo"),
        ("loss_type: simpo\nsimpo_gamma: 0.5\n", "simpo"),
        ("desirable_weight: 1.0\n", "kto"),
        ("loss_type: kto\n", "kto"),
        ("cpo_alpha: 1.0\n", "cpo"),
        ("center_rewards_coefficient: 0.01\n", "reward"),
        ("lora_task_type: SEQ_CLS\n", "reward"),
        ("task_type: pretrain\n", "pretrain"),
        ("trainer_type: DPOTrainer\nnum_generations: 2\n", "dpo"),
        ("packing: true\n", "sft"),
    ],
)
def test_the_trainer_follows_from_the_keys(keys, expected):
    assert objective(keys)[0] == expected


@pytest.mark.parametrize(
    ("path", "keys", "expected"),
    [
        ("recipes/zephyr/dpo/config_full.yaml", "", "dpo"),
        ("recipes/zephyr/orpo/config.yaml", "beta: 0.1\nmax_prompt_length: 8\n", "orpo"),
        ("recipes/dpo-models/sft/config.yaml", "", "sft"),
        ("grpo/sft_config.yaml", "", "sft"),
        ("recipes/x/config.yaml", "", "sft"),
        ("adopted/ppt/config.yaml", "", "sft"),
    ],
)
def test_then_from_the_innermost_name_in_the_path(path, keys, expected):
    assert objective(keys, path)[0] == expected


def test_what_nothing_tells_is_assumed():
    assert objective("")[1].kind == "assumed"
    assert objective("beta: 0.1\n")[1].key == "beta"


class TestGrpo:
    def test_defaults(self, hf):
        job = hf.job(TRL + "num_generations: 8\nuse_vllm: true\n")
        assert (job.rl.generations, job.rl.completion_length) == (8, 512)
        assert (job.rl.vllm, job.rl.vllm_gpu_memory_utilization, job.rl.vllm_sleep) == ("colocate", 0.3, False)
        assert job.rl.reference_model is False
        assert job.loss.kernel == "chunked"
        assert job.origins["rl.prompt_length"].kind == "assumed"
        assert job.sequence_length == 512 + 512

    def test_without_vllm_nothing_shares_the_gpu(self, hf):
        job = hf.job(TRL + "num_generations: 8\nvllm_gpu_memory_utilization: 0.9\n")
        assert (job.rl.vllm, job.rl.vllm_gpu_memory_utilization) == (None, None)

    def test_a_length_for_vllm_bounds_the_prompt(self, hf):
        job = hf.job(TRL + "max_completion_length: 1024\nvllm_max_model_length: 4096\n")
        assert (job.rl.prompt_length, job.sequence_length) == (3072, 4096)

    def test_beta_brings_a_reference_model_but_not_under_lora(self, hf):
        assert hf.job(TRL + "num_generations: 4\nbeta: 0.04\n").rl.reference_model is True
        assert hf.job(TRL + "num_generations: 4\nbeta: 0.04\nuse_peft: true\n").rl.reference_model is False

    def test_prompt_and_completion_are_one_row(self, hf):
        job = hf.job(TRL + "max_prompt_length: 300\nmax_completion_length: 700\n")
        assert job.sequence_length == 1000
        assert job.origins["rl.prompt_length"].key == "max_prompt_length"


class TestPreference:
    def test_a_full_fine_tune_keeps_a_copy(self, hf):
        job = hf.job(TRL + "loss_type: sigmoid\n")
        assert (job.objective, job.rl.reference_model, job.sequence_length) == ("dpo", True, 1024)

    def test_precomputing_drops_it(self, hf):
        job = hf.job(TRL + "precompute_ref_log_probs: true\n")
        assert (job.rl.precompute_reference, job.rl.reference_model) == (True, False)

    def test_an_adapter_is_its_own_reference(self, hf):
        assert hf.job(TRL + "loss_type: sigmoid\nuse_peft: true\n").rl.reference_model is False

    @pytest.mark.parametrize("keys", ["loss_type: orpo\n", "simpo_gamma: 0.5\n"])
    def test_losses_without_reference(self, hf, keys):
        assert hf.job(TRL + keys).rl.reference_model is False

    def test_trainers_outside_the_stable_ones_make_whole_logits(self, hf):
        assert hf.job(TRL + "loss_type: orpo\n").loss.kernel == "torch"
        assert hf.job(TRL + "center_rewards_coefficient: 0.01\n").loss.kernel == "torch"


def test_where_vllm_runs_is_what_the_release_of_a_former_key_says(hf):
    online = TRL + "num_generations: 4\nuse_vllm: true\n"
    assert hf.job(online).rl.vllm == "colocate"
    assert hf.job(online + "max_prompt_length: 300\n").rl.vllm == "server"
    assert hf.job(online + "max_prompt_length: 300\nvllm_mode: colocate\n").rl.vllm == "colocate"
