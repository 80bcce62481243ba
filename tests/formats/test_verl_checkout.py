"""The trainer's config of a checkout lies under a command, in the place of the one that the newest release ships."""

import pytest

from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.run.check import check
from gpulint.settings.settings import Settings

RUN = (
    "python3 -m verl.trainer.main_ppo {} actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct"
    " data.train_batch_size=60 actor_rollout_ref.actor.ppo_mini_batch_size=60 algorithm.adv_estimator=grpo\n"
)
CONFIG = """\
actor_rollout_ref:
  actor: {{strategy: fsdp, ppo_micro_batch_size_per_gpu: 3}}
trainer: {{n_gpus_per_node: {}, nnodes: 1}}
"""
GROUPS = "defaults:\n- actor@actor_rollout_ref.actor: dp_actor\n- _self_\ntrainer: {n_gpus_per_node: 7, nnodes: 1}\n"
FOLDER = "verl/trainer/config"


def opened(path="examples/x/run.sh"):
    return open_jobs(recognise_file(path), Settings(root=".")).opened[0]


@pytest.mark.parametrize(
    ("options", "files", "gpus"),
    [
        ("", {}, 8),  # as the newest release ships it
        ("", {f"{FOLDER}/ppo_trainer.yaml": CONFIG.format(5)}, 5),
        ("", {f"{FOLDER}/ppo_trainer.yaml": GROUPS, f"{FOLDER}/_generated_ppo_trainer.yaml": CONFIG.format(5)}, 5),
        ("", {f"{FOLDER}/ppo_trainer.yaml": GROUPS}, 8),  # what its groups say is not put together
        ("--config-name=mine", {f"{FOLDER}/mine.yaml": CONFIG.format(5)}, 5),
        ("--config-name=mine.yaml", {f"{FOLDER}/mine.yaml": CONFIG.format(5)}, 5),
        ("--config-path=./config --config-name=mine", {f"{FOLDER}/mine.yaml": CONFIG.format(5)}, 5),
        ("--config-path=$PWD/examples/c --config-name=mine", {"examples/c/mine.yaml": CONFIG.format(5)}, 5),
        ("--config-name=mine", {"examples/c/mine.yaml": CONFIG.format(5)}, 8),
    ],
)
def test_the_config_under_a_command(project, options, files, gpus):
    project({"examples/x/run.sh": RUN.format(options), **files})
    job = opened().reading.job
    assert job.hardware.gpus == gpus
    assert (job.micro_batch_size == 3) is (gpus == 5)


def test_a_value_says_that_it_stands_in_the_checkout(project):
    project({"examples/x/run.sh": RUN.format(""), f"{FOLDER}/ppo_trainer.yaml": CONFIG.format(5)})
    origin = opened().reading.job.origins["micro_batch_size"]
    assert (origin.kind, origin.file, origin.span.line) == ("file", f"{FOLDER}/ppo_trainer.yaml", 2)


def test_a_change_of_the_config_checks_the_command(project):
    project({"examples/x/run.sh": RUN.format("--config-name=mine"), f"{FOLDER}/mine.yaml": CONFIG.format(5)})
    project({"pyproject.toml": ""})
    report = check([f"{FOLDER}/mine.yaml"], Settings(gpu="h100-80gb"))
    assert "examples/x/run.sh" in [file.path for file in report.files]


def test_a_config_does_not_lie_under_itself(project):
    project({f"{FOLDER}/ppo_trainer.yaml": CONFIG.format(5) + "data: {train_batch_size: 60}\n"})
    assert opened(f"{FOLDER}/ppo_trainer.yaml").reading.references == {}


@pytest.mark.parametrize(
    ("release", "each"),
    [("0.4.0", True), ("0.8.0", True), ("0.9.0", False), ("0.9.1", True), ("0.10.0", True), (None, True)],
)
def test_gradients_wait_for_the_last_micro_batch_in_one_release(project, release, each):
    project({"examples/x/run.sh": RUN.format("trainer.n_gpus_per_node=2")})
    project({"requirements.txt": f"verl=={release}\n" if release else "verl\n"})
    job = opened().reading.job
    assert job.parallelism.fsdp.sync_each_batch is each
    assert ("parallelism.fsdp.sync_each_batch" in job.unstated) is (release is None)


@pytest.mark.parametrize("release", ["0.9.1", None])
@pytest.mark.parametrize(("said", "each"), [("True", False), ("False", True)])
def test_an_option_says_whether_gradients_wait(project, release, said, each):
    option = f"actor_rollout_ref.actor.fsdp_config.use_no_sync_for_gradient_accumulation={said}"
    project({"examples/x/run.sh": RUN.format(f"trainer.n_gpus_per_node=2 {option}")})
    project({"requirements.txt": f"verl=={release}\n" if release else "verl\n"})
    reading = opened().reading
    assert reading.job.parallelism.fsdp.sync_each_batch is each
    assert "parallelism.fsdp.sync_each_batch" not in reading.job.unstated
    assert not [item for item in reading.problems if item.kind == "unknown-key"]
