"""`check --fix` as a stranger meets it: what is written, what is left alone, and why."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpulint.cli import main
from gpulint.run import fixing
from gpulint.settings.settings import Settings

RULES = {
    "smaller.yaml": """\
id: TEAM001
name: micro-batch-above-four
since: "1.0"
status: stable
severity: warning
confidence: high
when: micro_batch_size > 4
at: [micro_batch_size]
message: "{micro_batch_size} rows"
why: Our policy.
suggest: [{set: {micro_batch_size: 4}, fix: safe}]
examples: []
""",
    "shorter.yaml": """\
id: TEAM002
name: context-above-8k
since: "1.0"
status: stable
severity: warning
confidence: high
when: default(sequence_length, 0) > 8192 or default(inference.max_model_len, 0) > 8192
at: [sequence_length, inference.max_model_len]
message: too long
why: Our policy.
suggest:
  - {set: {sequence_length: 8192}, needs: kind == "training", fix: unsafe}
  - {set: {inference.max_model_len: 8192}, needs: kind == "inference", fix: unsafe}
examples: []
""",
    "buckets.yaml": """\
id: TEAM003
name: buckets-above-a-hundred-million
since: "1.0"
status: stable
severity: warning
confidence: high
when: deepspeed.zero_optimization.reduce_bucket_size > 1e8
at: [deepspeed.zero_optimization.reduce_bucket_size]
message: buckets
why: Our policy.
suggest: [{config: {deepspeed.zero_optimization.reduce_bucket_size: 100000000}, fix: safe}]
examples: []
""",
}

AXOLOTL = """\
# our run
base_model: &model NousResearch/Llama-3.2-1B   # small
tokenizer_config: *model
datasets: [{path: 'tatsu-lab/alpaca', type: "alpaca"}]
adapter: lora
lora_r: 16
lora_target_linear: true
micro_batch_size: 8  # rows
sequence_len: 16384
"""
TRAINER = """\
model_name_or_path: Qwen/Qwen2.5-0.5B
dataset_name: trl-lib/Capybara
output_dir: out
per_device_train_batch_size: 8
deepspeed: ds.json
bf16: true
"""
DEEPSPEED = """\
{
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 2, "reduce_bucket_size": 500000000},
    "train_micro_batch_size_per_gpu": "auto"
}
"""
TORCHTITAN = """\
[job]
dump_folder = "out"

[model]
name = "llama3"
flavor = "8B"

[training]
local_batch_size = 8  # rows
seq_len = 16384
"""
SCRIPT = """\
#!/bin/bash
# serve it
vllm serve meta-llama/Llama-3.1-8B \\
  --max-model-len 16384 \\
  --dtype "bfloat16"  # as trained
"""
MANIFEST = """\
apiVersion: v1
kind: Pod
metadata: {name: serve}
spec:
  containers:
    - name: vllm
      image: vllm/vllm-openai:v0.11.0
      args:
        - --model=meta-llama/Llama-3.1-8B
        - "--max-model-len=16384"   # tokens
      resources: {limits: {nvidia.com/gpu: 1}}
"""
FILES = {
    "axolotl.yaml": AXOLOTL,
    "trainer.yaml": TRAINER,
    "ds.json": DEEPSPEED,
    "titan.toml": TORCHTITAN,
    "serve.sh": SCRIPT,
    "pod.yaml": MANIFEST,
}
FIXED = {
    "axolotl.yaml": AXOLOTL.replace("8  # rows", "4  # rows").replace("16384", "8192"),
    "trainer.yaml": TRAINER.replace("size: 8", "size: 4"),
    "ds.json": DEEPSPEED.replace("500000000", "100000000"),
    "titan.toml": TORCHTITAN.replace("8  # rows", "4  # rows").replace("16384", "8192"),
    "serve.sh": SCRIPT.replace("16384", "8192"),
    "pod.yaml": MANIFEST.replace("16384", "8192"),
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with the files, rules of its own and no others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    (tmp_path / "rules").mkdir()
    for name, text in RULES.items():
        (tmp_path / "rules" / name).write_text(text)
    (tmp_path / "gpulint.toml").write_text('rules = ["rules"]\nselect = ["TEAM"]\nexclude = ["rules/*"]\ngpus = 1\n')
    for name, text in FILES.items():
        (tmp_path / name).write_bytes(text.encode())
    return tmp_path


def check(*arguments):
    return CliRunner().invoke(main, ["check", *arguments], catch_exceptions=False)


def texts(folder):
    return {name: (folder / name).read_bytes().decode() for name in FILES}


def test_all_fixes_of_all_syntaxes(project):
    result = check(*FILES, "--fix", "--unsafe-fixes")
    assert texts(project) == FIXED
    assert result.output.splitlines()[-1] == "8 fixed"
    assert result.exit_code == 0
    assert check(*FILES, "--fix", "--unsafe-fixes").output.splitlines()[-1] == "0 fixed"


def test_safe_fixes_alone(project):
    result = check("axolotl.yaml", "titan.toml", "--fix", "--fail-on", "warning")
    assert texts(project)["axolotl.yaml"] == AXOLOTL.replace("8  # rows", "4  # rows")
    assert texts(project)["titan.toml"] == TORCHTITAN.replace("8  # rows", "4  # rows")
    assert result.output.splitlines()[-1] == "2 fixed, 2 need --unsafe-fixes"
    assert result.exit_code == 1


def test_the_settings_say_which_fixes_are_safe(project):
    with (project / "gpulint.toml").open("a") as file:
        file.write('extend-safe-fixes = ["context-above-8k"]\nextend-unsafe-fixes = ["TEAM001"]\n')
    result = check("axolotl.yaml", "--fix")
    assert texts(project)["axolotl.yaml"] == AXOLOTL.replace("16384", "8192")
    assert result.output.splitlines()[-1] == "1 fixed, 1 needs --unsafe-fixes"


def test_a_fix_of_no_rule_is_refused(project):
    with (project / "gpulint.toml").open("a") as file:
        file.write('extend-safe-fixes = ["context-above-8"]\n')
    result = check("axolotl.yaml")
    assert result.exit_code == 2
    assert "extend-safe-fixes: unknown rule context-above-8; did you mean context-above-8k?" in result.output


def test_a_plain_check_says_what_could_be_fixed(project):
    result = check("axolotl.yaml")
    assert texts(project) == FILES
    assert result.output.splitlines()[-1] == "1 fixable with --fix, 1 more with --fix --unsafe-fixes"


def test_fix_only_reports_nothing_and_succeeds(project):
    result = check("axolotl.yaml", "--fix-only", "--fail-on", "warning")
    assert result.output == "1 fixed, 1 needs --unsafe-fixes\n"
    assert result.exit_code == 0
    assert texts(project)["axolotl.yaml"] != AXOLOTL


def test_a_diff_writes_nothing_and_is_the_patch(project, golden):
    result = check(*FILES, "--diff", "--unsafe-fixes")
    assert texts(project) == FILES
    assert result.exit_code == 1
    assert result.stderr == "8 would be fixed\n"
    golden("fixes.diff", result.stdout.rstrip("\n"))
    if shutil.which("patch"):
        subprocess.run(["patch", "-p0", "-s"], input=result.stdout, text=True, check=True, cwd=project)
        assert texts(project) == FIXED
    assert check("serve.sh", "--diff").exit_code == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\n", "\r\n"),
        ("# our run", "\ufeff# our run"),
        ("  # rows", "    # r\u00f6ws \U0001f600"),
        ("lora_r: 16", "'lora_r':   !!int '16'"),
    ],
)
def test_line_endings_marks_and_comments_survive(project, old, new):
    (project / "axolotl.yaml").write_bytes(AXOLOTL.replace(old, new).encode())
    check("axolotl.yaml", "--fix", "--unsafe-fixes")
    assert texts(project)["axolotl.yaml"] == FIXED["axolotl.yaml"].replace(old, new)


def test_a_last_line_without_an_end_stays_so(project):
    (project / "axolotl.yaml").write_text(AXOLOTL.rstrip("\n"))
    patch = check("axolotl.yaml", "--diff", "--unsafe-fixes").stdout
    assert patch.count("\\ No newline at end of file") == 2
    check("axolotl.yaml", "--fix", "--unsafe-fixes")
    assert texts(project)["axolotl.yaml"] == FIXED["axolotl.yaml"].rstrip("\n")


def test_a_fix_in_a_file_that_the_config_names(project):
    result = check("trainer.yaml", "--fix")
    assert texts(project) == {**FILES, "trainer.yaml": FIXED["trainer.yaml"], "ds.json": FIXED["ds.json"]}
    assert result.output.splitlines()[-1] == "2 fixed"


def test_zero_is_changed_in_the_file_that_the_trainer_names(project):
    (project / "rules" / "stage.yaml").write_text(
        HARMFUL.replace("config.lora_r == 16", "parallelism.zero.stage == 2")
        .replace("config.lora_r", "parallelism.zero.stage")
        .replace("{config: {micro_batch_size: 16, lora_r: 8}", "{set: {parallelism.zero.stage: 3, micro_batch_size: 2}")
    )
    check("trainer.yaml", "--fix", "--select", "TEAM004")
    saves = ', "stage3_gather_16bit_weights_on_model_save": true}'  # else nothing would be saved under stage 3
    three = DEEPSPEED.replace('"stage": 2', '"stage": 3')
    assert texts(project)["ds.json"] == three.replace("500000000}", f"500000000{saves}")
    assert texts(project)["trainer.yaml"] == TRAINER.replace("size: 8", "size: 2")


def test_the_mode_stays_and_nothing_else_is_left_behind(project):
    os.chmod(project / "serve.sh", 0o751)
    before = set(os.listdir(project))
    check("serve.sh", "--fix", "--unsafe-fixes")
    assert texts(project)["serve.sh"] == FIXED["serve.sh"]
    assert stat.S_IMODE(os.stat(project / "serve.sh").st_mode) == 0o751
    assert set(os.listdir(project)) == before


def test_links_are_not_written(project):
    (project / "ds.json").rename(project / "real.json")
    (project / "ds.json").symlink_to("real.json")
    result = check("trainer.yaml", "--fix")
    assert (project / "real.json").read_text() == DEEPSPEED
    assert (project / "ds.json").is_symlink()
    assert "TEAM003 not fixed: ds.json not written: it is a symbolic link" in result.stderr
    assert "1 fixed, 1 not applied" in result.stdout


def test_files_of_another_project_are_not_written(project, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "ds.json").write_text(DEEPSPEED)
    (project / "ds.json").unlink()
    (project / "far").symlink_to(elsewhere)
    (project / "trainer.yaml").write_text(TRAINER.replace("ds.json", "far/ds.json"))
    check("trainer.yaml", "--fix")
    assert (elsewhere / "ds.json").read_text() == DEEPSPEED
    (elsewhere / "axolotl.yaml").write_text(AXOLOTL)
    check("far/axolotl.yaml", "--fix")
    assert (elsewhere / "axolotl.yaml").read_text() in (AXOLOTL, AXOLOTL.replace("8  # rows", "4  # rows"))


HARMFUL = """\
id: TEAM004
name: fix-that-harms
since: "1.0"
status: stable
severity: warning
confidence: high
when: config.lora_r == 16
at: [config.lora_r]
message: rank
why: Our policy.
suggest: [{config: {micro_batch_size: 16, lora_r: 8}, fix: safe}]
examples: []
"""


def test_a_fix_that_would_bring_another_finding_is_held_back(project):
    (project / "rules" / "harmful.yaml").write_text(HARMFUL)
    text = AXOLOTL.replace("size: 8", "size: 2").replace("16384", "1024")
    (project / "axolotl.yaml").write_text(text)
    result = check("axolotl.yaml", "--fix")
    assert (project / "axolotl.yaml").read_text() == text
    assert "axolotl.yaml:6:9: TEAM004 not fixed: it would cause TEAM001 micro-batch-above-four" in result.stderr
    assert result.stdout.splitlines()[-1] == "0 fixed, 1 not applied"


STRICT = """\
id: TEAM006
name: clipping-of-seven
since: "1.0"
status: stable
severity: warning
confidence: high
applies: {formats: [hf_trainer]}
when: deepspeed.gradient_clipping == 7
at: [deepspeed]
message: seven
why: Our policy.
examples: []
"""


def test_a_fix_that_harms_another_checked_file_is_held_back(project):
    clipping = HARMFUL.replace("config.lora_r == 16", "config.zero_optimization.stage == 3").replace("lora_r", "steps")
    clipping = clipping.replace("micro_batch_size: 16, steps: 8", "gradient_clipping: 7, zero_optimization.stage: 2")
    (project / "rules" / "harmful.yaml").write_text(clipping)
    (project / "rules" / "strict.yaml").write_text(STRICT.replace("at: [deepspeed]", "at: [config.deepspeed]"))
    (project / "ds.json").write_text(DEEPSPEED.replace('"stage": 2', '"stage": 3').replace("500000000", "1"))
    (project / "trainer.yaml").write_text(FIXED["trainer.yaml"])
    result = check("ds.json", "trainer.yaml", "--fix")
    assert "TEAM004 not fixed: it would cause TEAM006" in result.stderr
    assert json.loads((project / "ds.json").read_text())["zero_optimization"]["stage"] == 3
    assert "1 fixed" in check("ds.json", "--fix").stdout


def test_json_stays_alone_on_standard_output(project):
    result = check("axolotl.yaml", "--fix", "--output-format", "json")
    assert [item["rule"] for item in json.loads(result.stdout)["findings"]] == ["TEAM002"]
    assert result.stderr == "1 fixed, 1 needs --unsafe-fixes\n"


def test_a_file_that_cannot_be_written_is_an_error_and_stops_no_other(project, monkeypatch):
    real = os.replace

    def refuse(source, target):
        if str(target).endswith("axolotl.yaml"):
            raise PermissionError(13, "Permission denied")
        real(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    result = check("axolotl.yaml", "titan.toml", "--fix")
    assert result.exit_code == 2
    assert "gpulint: axolotl.yaml: not written: permission denied" in result.stderr
    assert texts(project)["axolotl.yaml"] == AXOLOTL
    assert texts(project)["titan.toml"] != TORCHTITAN
    assert not [name for name in os.listdir(project) if name.startswith(".axolotl")]


def test_a_file_that_changed_meanwhile_is_left(project):
    from gpulint.source.edit.write import WriteError, replace_text

    with pytest.raises(WriteError, match="has changed in the meantime"):
        replace_text(str(project / "axolotl.yaml"), "something else", "new")
    assert texts(project) == FILES


def test_secrets_are_masked_in_a_diff(project):
    (project / "axolotl.yaml").write_text(AXOLOTL.replace("micro_batch", "hub_token: hf_abcdefghijkl\nmicro_batch"))
    result = check("axolotl.yaml", "--diff")
    assert "+micro_batch_size: 4" in result.stdout
    assert "hf_abc" not in result.stdout


def test_a_secret_below_its_flag_is_masked_in_a_diff():
    from gpulint.report.text.fixes import diff

    before = "vllm serve m \\\n  --api-key \\\n  Zebra91 \\\n  --seed 1\n"
    shown = diff({"serve.sh": fixing.Change(before, before.replace("seed 1", "seed 2"))})
    assert "   ******* \\\n" in shown
    assert "+  --seed 2\n" in shown


KEYS = yaml.safe_load(AXOLOTL)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.permutations(sorted(KEYS)), st.data())
def test_fixing_changes_the_intended_keys_alone_and_twice_is_once(project, order, data):
    values = {
        **KEYS,
        "micro_batch_size": data.draw(st.integers(1, 9)),
        "sequence_len": data.draw(st.integers(8000, 9000)),
    }
    style, newline = data.draw(st.sampled_from(["block", "flow", "json"])), data.draw(st.sampled_from(["\n", "\r\n"]))
    if style == "json":
        text = json.dumps({key: values[key] for key in order}, indent=2) + "\n"
    else:
        lines = [yaml.safe_dump({key: values[key]}, width=999, default_flow_style=style == "flow") for key in order]
        text = "".join(line.strip("{}\n") + "  # " + str(number) + "\n" for number, line in enumerate(lines))
        if style == "block":
            text = "".join(f"# {number}\n{line}" for number, line in enumerate(lines))
    path = project / ("run.json" if style == "json" else "run.yaml")
    text = text.replace("\n", newline)
    path.write_bytes(text.encode())
    options = Settings(root=str(project), rules=(str(project / "rules"),), select=("TEAM",), gpus=1)
    assert fixing.write(fixing.fix([str(path)], options, unsafe=True)) == []
    after = path.read_bytes().decode()
    expected = {
        **values,
        "micro_batch_size": min(values["micro_batch_size"], 4),
        "sequence_len": min(values["sequence_len"], 8192),
    }
    assert yaml.safe_load(after) == expected
    changed = sum(one != two for one, two in zip(text.split("\n"), after.split("\n"), strict=True))
    assert changed == sum(expected[key] != values[key] for key in values)
    again = fixing.fix([str(path)], options, unsafe=True)
    assert (again.fixed, again.held, again.changes) == (0, [], {})


def test_a_misspelt_key_is_mended_before_memory_is_sought_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (
        "base_model: NousResearch/Meta-Llama-3-8B\n"
        "adapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n"
        "datasets: [{path: tatsu-lab/alpaca, type: alpaca}]\nsequence_len: 2048\nsample_packing: true\n"
        "attn_implementation: flash_attention_2\nmicro_batch_size: 1\noptimizer: adamw_torch_fused\nbf16: true\n"
        "gradient_checkpointng: true\n"
    )
    (tmp_path / "x.yaml").write_text(text)
    fixes = fixing.fix(["x.yaml"], Settings(gpu="rtx-4090", gpus=1), unsafe=True)
    assert fixes.changes["x.yaml"].after == text.replace("checkpointng", "checkpointing")
    assert fixes.report.findings == []
