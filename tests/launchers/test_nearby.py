"""The launcher beside a config gives its hardware; a started config is reported once."""

import pytest

from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.repository.references import MAX_SIZE
from gpulint.run.check import check
from gpulint.settings.settings import Settings

CONFIG = """\
base_model: NousResearch/Meta-Llama-3-8B
datasets: [{path: a/b, type: alpaca}]
sequence_len: 8192
micro_batch_size: 8
bf16: true
flash_attention: true
"""
RUN = "accelerate launch --num_processes 4 --use_deepspeed --zero_stage 3 -m axolotl.cli.train {}\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "train.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def opened(path, **settings):
    return open_jobs(recognise_file(path), Settings(root=".", **settings)).opened[0]


def test_a_script_in_the_root_gives_gpus_and_sharding(project):
    (project / "run.sh").write_text(RUN.format("configs/train.yaml"))
    job = opened("configs/train.yaml").reading.job
    assert (job.hardware.gpus, job.parallelism.zero.stage) == (4, 3)
    assert (job.origins["hardware.gpus"].file, job.origins["hardware.gpus"].key) == ("run.sh", "num_processes")


def test_the_command_line_still_decides_the_count(project):
    (project / "run.sh").write_text(RUN.format("configs/train.yaml"))
    job = opened("configs/train.yaml", gpus=16).reading.job
    assert (job.hardware.gpus, job.parallelism.zero.stage) == (16, 3)


def test_the_nearest_folder_counts(project):
    (project / "run.sh").write_text(RUN.format("configs/train.yaml"))
    (project / "configs" / "near.sh").write_text(RUN.format("train.yaml").replace("4", "2"))
    assert opened("configs/train.yaml").reading.job.hardware.gpus == 2


@pytest.mark.parametrize(
    "text",
    [
        RUN.format("other.yaml") + "# configs/train.yaml\n",
        RUN.format("configs/train.yaml") + RUN.format("configs/train.yaml").replace("4", "8"),
        "#" * (MAX_SIZE + 1) + "\n" + RUN.format("configs/train.yaml"),
    ],
)
def test_what_starts_something_else_or_is_ambiguous_says_nothing(project, text):
    (project / "run.sh").write_text(text)
    assert opened("configs/train.yaml").reading.job.hardware.gpus == 1


def test_a_config_that_states_its_gpus_is_left_alone(project):
    (project / "configs" / "train.yaml").write_text("# gpulint: gpus=1\n" + CONFIG)
    (project / "run.sh").write_text(RUN.format("configs/train.yaml"))
    assert opened("configs/train.yaml").reading.job.parallelism.zero is None


def test_nothing_above_the_root_is_read(project, monkeypatch):
    (project / "run.sh").write_text(RUN.format("configs/train.yaml"))
    monkeypatch.chdir(project / "configs")
    assert opened("train.yaml").reading.job.hardware.gpus == 1


def test_a_started_config_is_reported_once_and_as_it_is_started(project):
    (project / "configs" / "train.yaml").write_text(CONFIG + "sampel_packing: true\n")
    (project / "run.sh").write_text(RUN.format("configs/train.yaml"))
    report = check([str(project)], Settings(gpu="a100-40gb", root=str(project)))
    alone = check([str(project / "configs")], Settings(gpu="a100-40gb", root=str(project)))
    assert [item.rule for item in report.findings].count("GPU001") == 1
    assert {(f.rule, f.message) for f in report.findings} == {(f.rule, f.message) for f in alone.findings}
    assert len(report.files) == 2


def test_a_comment_in_the_started_config_silences_its_line(project):
    (project / "configs" / "train.yaml").write_text(CONFIG + "sampel_packing: true  # gpulint: ignore[GPU001]\n")
    (project / "run.sh").write_text(RUN.format("configs/train.yaml"))
    report = check([str(project)], Settings(root=str(project)))
    assert "GPU001" not in {item.rule for item in report.findings}
    assert report.suppressed >= 1


class TestEnvironment:
    def job(self, project, script):
        (project / "go.sh").write_text(script)
        return opened("go.sh").reading.job

    def test_the_allocator_follows_the_script(self, project):
        start = "axolotl train configs/train.yaml\n"
        job = self.job(project, "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128\n" + start)
        assert (job.allocator.expandable_segments, job.allocator.max_split_size_mb) == (False, 128)
        assert job.origins["allocator.max_split_size_mb"].key == "PYTORCH_CUDA_ALLOC_CONF"
        assert self.job(project, start).allocator.expandable_segments is True

    def test_llamafactory_starts_its_own_processes(self, project):
        (project / "lf.yaml").write_text(
            "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\ndo_train: true\nfinetuning_type: lora\n"
            "cutoff_len: 512\n"
        )
        script = "FORCE_TORCHRUN=1 NNODES=2 NPROC_PER_NODE=4 llamafactory-cli train lf.yaml cutoff_len=1024\n"
        job = self.job(project, script)
        assert (job.hardware.gpus, job.hardware.nodes, job.sequence_length) == (8, 2, 1024)
        assert self.job(project, "llamafactory-cli train lf.yaml\n").hardware.gpus == 1

    def test_axolotl_starts_the_launcher_that_it_is_told(self, project):
        script = "axolotl train configs/train.yaml --launcher torchrun -- --nproc_per_node=2\n"
        job = self.job(project, script)
        assert job.hardware.gpus == 2

    def test_oumi_under_accelerate_s_launcher_is_sharded_as_that_says(self, project):
        config = "model: {model_name: org/m}\ntraining: {trainer_type: TRL_SFT, per_device_train_batch_size: 1}\n"
        (project / "configs" / "oumi.yaml").write_text(config + "fsdp: {enable_fsdp: true, cpu_offload: true}\n")
        file = "distributed_type: FSDP\nmixed_precision: bf16\nfsdp_config: {fsdp_sharding_strategy: SHARD_GRAD_OP}\n"
        (project / "acc.yaml").write_text(file)
        script = "accelerate launch --num_processes 16 --config_file acc.yaml -m oumi train -c configs/oumi.yaml\n"
        job = self.job(project, script)
        fsdp = job.parallelism.fsdp
        assert (job.hardware.gpus, job.precision.autocast) == (16, "bfloat16")
        assert (fsdp.sharding, fsdp.offload) == ("shard_grad_op", False)
        own = self.job(project, "torchrun --nproc_per_node 8 -m oumi train -c configs/oumi.yaml\n").parallelism.fsdp
        assert (own.sharding, own.offload) == ("full_shard", True)

    def test_the_processes_of_an_accelerate_file(self, project):
        (project / "acc.yaml").write_text("distributed_type: MULTI_GPU\nnum_processes: 6\nnum_machines: 2\n")
        script = "accelerate launch --config_file acc.yaml -m axolotl.cli.train configs/train.yaml\n"
        job = self.job(project, script)
        assert (job.hardware.gpus, job.hardware.nodes) == (6, 2)
        assert job.origins["hardware.gpus"].file == "acc.yaml"
        script = script.replace("acc.yaml", "acc.yaml --num_processes $COUNT")
        assert self.job(project, script).hardware.gpus != 6
