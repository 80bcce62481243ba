"""A key that the tool does not know and another program of the project reads is not called ignored."""

import pytest

from gpulint.repository import key_readers
from gpulint.run.check import check
from gpulint.settings.settings import Settings

CONFIG = """\
base_model: Qwen/Qwen2.5-0.5B
image: mine:1
micro_batch_size: 1
gradient_accumulation_steps: 3
learning_rate: 0.0002
datasets: [{path: mine, type: alpaca}]
"""
OPENS = "import yaml\nconfig = yaml.safe_load(open(path))\n"
READS = 'config["image"]\n'


def told(path="configs/sft.yaml"):
    found = check([path], Settings(root=".")).findings
    return [item.rule for item in found if item.rule in ("GPU001", "GPU002", "GPU016")]


def test_a_key_that_nothing_reads_is_told(project):
    project({"configs/sft.yaml": CONFIG, "cli/run.py": OPENS})
    assert told() == ["GPU001"]


@pytest.mark.parametrize(
    "line",
    [
        'config["image"]', "config.get('image', 1)", 'config.pop("image", None)', 'if "image" in config: pass',
        'if "image" not in config: pass', 'getattr(config, "image", 1)', 'add_argument("-i", "--image")',
        "@dataclass\nclass Job:\n    image: str | None = None",
        "class Job(BaseModel):\n    image: Optional[str]  # which",
    ],
)  # fmt: skip
def test_each_way_to_read_a_key(project, line):
    project({"configs/sft.yaml": CONFIG, "cli/run.py": f"{OPENS}{line}\n"})
    assert told() == []


@pytest.mark.parametrize(
    "line",
    [
        '# image', 'print("image")', "image = 1", '["image"]', 'config["images"]', "class Job:\n    image: str = 1",
        'record = {"image": 1}',
    ],
)  # fmt: skip
def test_a_word_that_reads_no_key(project, line):
    project({"configs/sft.yaml": CONFIG, "cli/run.py": f"{OPENS}{line}\n"})
    assert told() == ["GPU001"]


@pytest.mark.parametrize(
    ("files", "codes"),
    [
        ({"cli/run.py": OPENS, "cli/image.py": READS}, []),
        ({"cli/run.py": OPENS, "data/image.py": READS}, ["GPU001"]),  # nothing there opens configs
        ({"cli/run.py": "import tomllib\ntomllib.load(file)\n" + READS}, ["GPU001"]),  # nor files of this syntax
        ({"tests/run.py": OPENS + READS}, ["GPU001"]),
        ({"lib/site-packages/x/run.py": OPENS + READS}, ["GPU001"]),
        ({"cli/run.py": OPENS, "cli/fields.py": "@dataclass\nclass Job:\n    image: str\n"}, ["GPU001"]),
    ],
)
def test_which_file_reads_it(project, files, codes):
    project({"configs/sft.yaml": CONFIG, **files})
    assert told() == codes


def test_a_slip_counts_only_where_the_file_that_opens_configs_reads_it(project):
    config = CONFIG.replace("image: mine:1", "sequence_lem: 512")
    project({"configs/sft.yaml": config, "cli/run.py": OPENS, "cli/job.py": 'config["sequence_lem"]\n'})
    assert len(told()) == 1
    key_readers.readers.cache_clear()
    project({"cli/run.py": OPENS + 'config["sequence_lem"]\n'})
    assert told() == []


@pytest.mark.parametrize(
    ("code", "takes"),
    [
        ('config["image"]', False),
        ('config.pop("image", None)', True),
        ('del config["image"]', True),
        ('for name in ["gpu", "image"]:\n    config.pop(name, None)', True),
        ('print(["gpu", "image"])', False),
    ],
)
def test_what_takes_a_key_out_of_the_config(project, tmp_path, code, takes):
    project({"cli/run.py": f"{OPENS}{code}\n"})
    assert key_readers.reads("image", "yaml", str(tmp_path), itself=False, takes=True) is takes


@pytest.mark.parametrize(("code", "codes"), [('config["image"]', ["GPU016"]), ('config.pop("image")', [])])
def test_a_key_that_the_tool_stops_at_is_to_be_taken_out(project, code, codes):
    config = (
        "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ntemplate: qwen\n"
    )
    project({"configs/sft.yaml": config + "dataset: mine\nimage: mine:1\n", "cli/run.py": f"{OPENS}{code}\n"})
    assert told() == codes


def test_the_sections_of_a_dotted_key_are_read_there_too(project, tmp_path):
    project({"cli/run.py": OPENS + 'config["pod"]["image"]\n'})
    found = [
        key_readers.reads(key, "yaml", str(tmp_path), itself=False, takes=False) for key in ("pod.image", "trl.image")
    ]
    assert found == [True, False]


def test_what_is_too_large_is_not_read(project, tmp_path, monkeypatch):
    text = OPENS + READS
    project({"cli/run.py": text})
    for size, found in ((len(text), True), (len(text) - 1, False)):
        monkeypatch.setattr(key_readers, "MAX_SIZE", size)
        key_readers.readers.cache_clear()
        assert key_readers.reads("image", "yaml", str(tmp_path), itself=False, takes=False) is found
