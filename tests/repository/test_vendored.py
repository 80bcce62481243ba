"""A copy of an upstream tree runs at its own release, and knows the keys of its own configs."""

import os

import pytest

from gpulint.formats.core.format import Problem
from gpulint.formats.core.unknown_keys_policy import own_keys, settled
from gpulint.repository.pins import pins_for
from gpulint.repository.vendored import copied
from gpulint.run.check import check
from gpulint.settings.settings import Settings
from gpulint.source.node import Span
from gpulint.source.read import parse
from gpulint.upstream.key_releases.table import takes

VERL = {"pyproject.toml": '[project]\nname = "verl"\ndynamic = ["version"]\n', "verl/version/version": "0.4.1.dev\n"}


def named(name):
    return f'[build-system]\nrequires = []\n\n[project]\nname = "{name}"\ndynamic = ["version"]\n'


@pytest.mark.parametrize(
    ("files", "package", "release", "line"),
    [
        (VERL, "verl", "0.4.1.dev", 1),
        ({"setup.py": 'setup(\n  name="trl",\n  version="0.9.7.dev0",\n)\n', "trl/x.py": ""}, "trl", "0.9.7.dev0", 3),
        (
            {"setup.cfg": "[metadata]\nname = accelerate\nversion = 0.27.1\n", "src/accelerate/x.py": ""},
            "accelerate", "0.27.1", 3,
        ),
        (
            {"pyproject.toml": '[tool.poetry]\nname = "axolotl"\nversion = "0.5.3"\n', "src/axolotl/x.py": ""},
            "axolotl", "0.5.3", 3,
        ),
        (
            {"pyproject.toml": named("LLaMA_Factory"),
             "src/llamafactory/extras/env.py": 'import a\nVERSION = "0.9.2"\n'},
            "llamafactory", "0.9.2", 2,
        ),
        (
            {"setup.py": "setup(name='llmtuner')\n", "src/llmtuner/__init__.py": '# x\n__version__ = "0.5.1"\n'},
            "llamafactory", "0.5.1", 2,
        ),
        (
            {
                "pyproject.toml": named("megatron-core"),
                "megatron/core/package_info.py": "# x\nMAJOR = 0\nMINOR = 11\nPATCH = 3\nPRE_RELEASE = ''\n",
            },
            "megatron-core", "0.11.3", 2,
        ),
        ({"pyproject.toml": named("torchtitan"), "torchtitan/x.py": "", "assets/version.txt": "0.2.1\n"},
         "torchtitan", "0.2.1", 1),
        ({"pyproject.toml": named("deepspeed"), "deepspeed/x.py": "", "version.txt": "0.16.5\n"},
         "deepspeed", "0.16.5", 1),
    ],
)  # fmt: skip
def test_where_trees_say_their_release(project, files, package, release, line):
    found = copied(str(project(files)))
    assert found is not None
    assert (found.package, found.release, found.line) == (package, release, line)


@pytest.mark.parametrize(
    "files",
    [
        {**VERL, "pyproject.toml": named("my-agents")},
        {"pyproject.toml": VERL["pyproject.toml"] + 'version = "0.4.1"\n'},  # no folder of the module
        {**VERL, "verl/version/version": "main\n"},
        {"verl/version/version": "0.4.1\n"},
        {
            "pyproject.toml": '[project]\n[tool.x]\nname = "verl"\nversion = "0.4.1"\n',
            "verl/x.py": "",
        },
    ],
)
def test_what_is_no_copy_or_says_no_release(project, files):
    assert copied(str(project(files))) is None


def test_the_copy_stands_above_the_requirements_beside_it_and_not_above_those_further_in(project):
    project({**VERL, "requirements.txt": "verl==0.2.0\ntrl==0.9.6\n", "examples/x/requirements.txt": "verl==0.3.0\n"})
    pins = pins_for("examples/y/run.sh", ".")
    assert (pins["verl"].release, pins["verl"].exact, pins["trl"].release) == ("0.4.1.dev", True, "0.9.6")
    assert pins["verl"].origin.note == "pinned in verl/version/version:1"
    assert pins_for("examples/x/run.sh", ".")["verl"].release == "0.3.0"


def test_a_copy_below_counts_for_its_own_files_only(project):
    project({f"lib/{name}": text for name, text in VERL.items()})
    assert pins_for("lib/examples/run.sh", ".")["verl"].release == "0.4.1.dev"
    assert "verl" not in pins_for("run.sh", ".")


def test_a_new_release_of_the_copy_is_seen(project):
    files = {"setup.py": 'setup(name="trl", version="0.9.7")\n', "trl/x.py": ""}
    assert copied(str(project(files))).release == "0.9.7"
    project({"setup.py": 'setup(name="trl", version="0.10.1")\n'})
    os.utime("setup.py", ns=(1, 1))
    assert copied(str(project({}))).release == "0.10.1"


@pytest.mark.parametrize(("release", "is_gone"), [("0.10.0.dev", 0), ("0.10.0", 1), ("0.10.1.dev", 1), ("0.9.2", 0)])
def test_the_development_of_the_first_release_without_a_key_may_have_it(release, is_gone):
    assert takes("vllm", "enable_reasoning", {"vllm": release}) != is_gone


RUN = (
    "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct {}"
    " data.train_batch_size=60 actor_rollout_ref.actor.ppo_mini_batch_size=60 algorithm.adv_estimator=grpo\n"
)
STEPS = "actor_rollout_ref.actor.optim.lr_warmup_steps"


def told():
    found = check(["examples/run.sh"], Settings(root=".")).findings
    return [item.rule for item in found if item.rule in ("GPU001", "GPU002", "GPU004", "GPU016")]


@pytest.mark.parametrize(
    ("value", "release", "codes"),
    [
        ("null", "0.4.1.dev", []),
        ("null", "0.10.0", ["GPU004"]),
        ("null", "main", ["GPU004"]),
        ("many", "0.4.1.dev", ["GPU004"]),
    ],
)
def test_null_for_a_number_is_what_an_earlier_release_may_take(project, value, release, codes):
    project({**VERL, "verl/version/version": release, "examples/run.sh": RUN.format(f"{STEPS}={value}")})
    assert told() == codes


@pytest.mark.parametrize(
    ("key", "known"), [("lr_warmup_stesp", True), ("lr_warmup_stespp", False), ("# lr_warmup_stesp", False)]
)
def test_a_key_of_the_trees_own_configs_is_known_even_where_it_looks_like_a_slip(project, key, known):
    project(
        {
            **VERL,
            "examples/run.sh": RUN.format("actor_rollout_ref.actor.optim.lr_warmup_stesp=3"),
            "verl/trainer/main_ppo.py": "lr_warmup_stesp = 1\n",
            "verl/trainer/config/actor.yaml": f"optim:\n  {key}: 3\n",
        }
    )
    assert (told() == []) is known


def test_a_config_of_the_tree_does_not_vouch_for_itself(tmp_path):
    path = tmp_path / "verl/trainer/config/actor.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("lr_warmup_stesp: 3\n")
    values = {"treatment": "refused", "slip": "yes", "suggestion": "lr_warmup_steps", "upstream": "verl 0.10.0.dev"}
    problem = Problem("unknown-key", "lr_warmup_stesp", Span(1, 1, 1, 16, 0, 15), values)
    document = parse(path.read_text(), str(path), "yaml")
    assert settled([problem], document, str(tmp_path)) == [problem]
    own_keys.cache_clear()
    (path.parent / "critic.yaml").write_text(path.read_text())
    assert settled([problem], document, str(tmp_path)) == []


@pytest.mark.parametrize(
    ("files", "codes"),
    [({**VERL, "verl/version/version": "0.2.0"}, []), ({"requirements.txt": "verl==0.2.0\n"}, ["GPU002"])],
)
def test_a_copy_may_take_a_key_that_its_release_did_not(project, files, codes):
    project({**files, "examples/run.sh": RUN.format("trainer.rollout_data_dir=out")})
    assert told() == codes
