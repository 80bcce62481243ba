import subprocess
import sys

import pytest

from gpulint.formats.core.registry import FORMAT_NAMES, find, recognise
from gpulint.source.read import parse


def test_every_name_finds_its_format():
    assert [find(name).name for name in FORMAT_NAMES] == list(FORMAT_NAMES)


def test_an_unknown_name_is_a_key_error():
    with pytest.raises(KeyError):
        find("kubernetes")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("gpulint: job/v1\nmodel: m\n", "job"),
        ("base_model: m\nadapter: lora\n", "axolotl"),
        ("distributed_type: FSDP\nnum_processes: 2\n", "accelerate"),
        ("zero_optimization: {stage: 2}\n", "deepspeed"),
        ("model: m\nmax-model-len: 4096\n", "vllm"),
    ],
)
def test_formats_by_their_keys(text, name):
    assert recognise(parse(text, "c.yaml", "yaml")).name == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- a\n- b\n",
        "text\n",
        "services: {a: {}}\n",
        "num-layers: 24\nzero_optimization: {stage: 1}\n",
        "base_model: m\nlora_r: 8\nlr: 1\ndata_file: d\n",
        "train_micro_batch_size_per_gpu: 4\nlr: 1\nmax_steps: 2\nbf16: true\nseed: 1\nsave_dir: o\n",
        "model: {model_name: m}\ntraining: {}\nchinese: {}\nlora: {}\n",
        "model_name_or_path: m\noutput_dir: o\nbf16: true\n",
        "base_model: m\nlearning_rate: 1\nper_device_train_batch_size: 1\nnum_train_epochs: 1\nbf16: true\n",
        "train_micro_batch_size_per_gpu: 4\noptimizer: {}\nscheduler: {}\ngradient_clipping: 1.0\noutput_dir: o\n",
        "defaults: [a]\nmodel_name_or_path: m\nlearning_rate: 1\n",
        "trainer: {devices: 8}\nmodel_name_or_path: m\nlearning_rate: 1\n",
        "model_name_or_path: m\nlearning_rate: 1\nzero_stage: 3\n",
        "finetuning_type: lora\ntemplate: llama3\nlearning_rate: 1\nper_device_train_batch_size: 1\nbf16: true\n",
        "adapter: lora\nmicro_batch_size: 1\nbf16: true\noptimizer: adamw_torch\nlearning_rate: 1\n",
    ],
)
def test_anything_else_is_no_known_format(text):
    assert recognise(parse(text, "c.yaml", "yaml")) is None


def test_a_file_of_no_format_imports_no_format():
    code = (
        "import sys\n"
        "from gpulint.formats.core.registry import recognise\n"
        "from gpulint.source.read import parse\n"
        "assert recognise(parse('services: {}', 'c.yaml', 'yaml')) is None\n"
        "loaded = [name for name in sys.modules if name.startswith('gpulint.formats.')]\n"
        "own = {'', '.claims', '.others', '.registry', '.signs'}\n"
        "assert set(loaded) == {'gpulint.formats.core' + name for name in own}, loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("module", ["axolotl", "deepspeed", "accelerate"])
def test_a_format_keeps_heavy_modules_out(module):
    code = (
        f"import sys, gpulint.formats.{module}.format\n"
        "heavy = {'pydantic', 'jsonschema', 'ruamel.yaml', 'rich', 'urllib.request', 'difflib'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
