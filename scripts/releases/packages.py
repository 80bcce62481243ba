"""How the keys of each package are read out of one of its releases, by group: a schema's own keys, or a part of them.

A key is dotted, in upstream's spelling; `key=value` is a value of a choice. Paths start at the package's root.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from ..upstream import accelerate as accelerate_schema
from ..upstream import autotrain as autotrain_schema
from ..upstream import litgpt as litgpt_schema
from ..upstream import megatron as megatron_schema
from ..upstream import nemo_automodel, nemo_rl, tgi, torchtune, verl
from ..upstream import openrlhf as openrlhf_schema
from ..upstream import oumi as oumi_schema
from ..upstream.deepspeed import MODULES as DEEPSPEED
from ..upstream.deepspeed import SECTIONS
from ..upstream.hf_trainer import TRL_CONFIGS
from ..upstream.sglang import field_options
from .read import Files, all_fields, fields, nested, of_schema, options, strings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Groups = dict[str, set[str]]


def vllm(files: Files) -> Groups:
    """The options of the engine and of `vllm serve`, which are fields of dataclasses since 0.9; methods of packing."""
    frontend = [path for path in files.paths if path.endswith("/cli_args.py") and path.startswith("entrypoints/")]
    modules = ("engine/arg_utils.py", "engine/async_llm_engine.py", "entrypoints/openai/api_server.py", "scripts.py",
               "entrypoints/cli/serve.py", *frontend)  # fmt: skip
    names = {name for path in modules for name in options(files.tree(path))}
    classes = files.among(*frontend, "engine/arg_utils.py")
    for name in ("BaseFrontendArgs", "FrontendArgs"):
        names |= {field.replace("_", "-") for field in all_fields(classes, name)}
    methods = set(choices(files.tree("engine/arg_utils.py"), "--quantization"))
    cached = set(choices(files.tree("engine/arg_utils.py"), "--kv-cache-dtype"))
    for path in ("config.py", "config/cache.py"):
        cached |= set(listed(files.tree(path), {"CacheDType"}))
    listing = files.tree("model_executor/layers/quantization/__init__.py")
    methods |= set(listed(listing, {"QUANTIZATION_METHODS", "QuantizationMethods"}))
    values = {f"quantization={method}" for method in methods} | {f"kv-cache-dtype={dtype}" for dtype in cached}
    return {"": names | values}


def listed(tree: ast.Module | None, constants: set[str]) -> Iterator[str]:
    """The strings of what a module assigns to constants."""
    for node in ast.walk(tree) if tree is not None else ():
        named = [getattr(target, "id", "") for target in getattr(node, "targets", [getattr(node, "target", None)])]
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and constants & {*named}:
            yield from strings(node.value)


def choices(tree: ast.Module | None, option: str) -> list[str]:
    """The strings among the `choices` of an option."""
    found: list[str] = []
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "add_argument":
            continue
        if any(isinstance(argument, ast.Constant) and argument.value == option for argument in node.args):
            for said in (word.value for word in node.keywords if word.arg == "choices"):
                texts = listed(tree, {said.id}) if isinstance(said, ast.Name) else strings(said)
                found += [text for text in texts if text != "None"]
    return found


def sglang(files: Files) -> Groups:
    """The options of `ServerArgs`, which are annotated fields since 0.5.20."""
    names = set(options(files.tree("srt/server_args.py")))
    for classes in files.among("srt/server_args.py", "srt/arg_groups/").values():
        for cls in classes:
            for field, node in fields(cls).items():
                names |= set(field_options(node, field))
    return {"": names}


def transformers(files: Files) -> Groups:
    """The fields of `TrainingArguments` and of the one for sequence to sequence, and the names of optimizers."""
    classes = files.among("training_args.py", "training_args_seq2seq.py")
    own = all_fields(classes, "TrainingArguments")
    optimizers = {
        f"optim={node.value.value!s}" for cls in classes["OptimizerNames"] for node in cls.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    }  # fmt: skip
    return {"": own | optimizers, "seq2seq": all_fields(classes, "Seq2SeqTrainingArguments") - own}


def trl(files: Files) -> Groups:
    """The fields of every config and of the scripts' arguments together, and of the configs by class.

    What moved to `experimental` stopped being a key of TRL's own programs, except that KTO's went back and forth.
    """
    classes = files.among("trainer/", "scripts/", "commands/", *_EXPERIMENTAL)
    own = files.among("trainer/", "scripts/", "commands/").keys() | TRL_CONFIGS.keys()
    configs = [name for name in own if name.endswith(("Config", "Arguments")) and not name.startswith("_")]
    found = {"": {field for name in configs for field in all_fields(classes, name)}}
    return found | {name: keys for name in TRL_CONFIGS if (keys := all_fields(classes, name))}


_EXPERIMENTAL = ("experimental/kto/", "experimental/cpo/", "experimental/orpo/", "experimental/ppo/")


def accelerate(files: Files) -> Groups:
    """The fields of the config and of its sections, and the options of `accelerate launch`."""
    classes = files.among("commands/config/config_args.py")
    own = all_fields(classes, "ClusterConfig") | all_fields(classes, "SageMakerConfig")
    groups = accelerate_schema.arguments(files.need("commands/launch.py"))
    for section, (title, prefix) in accelerate_schema.SECTIONS.items():
        for key in groups.get(title, ()):
            own |= {f"{section}.{key}", f"{section}.{key.removeprefix(prefix)}"}
    return {"": own, "launch": {name.replace("-", "_") for name in options(files.tree("commands/launch.py"))}}


def deepspeed(files: Files) -> Groups:
    """The models of ZeRO and of the other sections; keys that code reads without a model are in no table."""
    texts = {path: text for path, text in files.named("").items() if path in DEEPSPEED}
    found = {f"zero_optimization.{key}" for key in nested(texts, "DeepSpeedZeroConfig")} | {"zero_optimization"}
    for section, name in SECTIONS.items():
        found |= {section, *(f"{section}.{key}" for key in nested(texts, name))}
    return {"": found}


def axolotl(files: Files) -> Groups:
    """The input config, and the arguments of the plugins."""
    found = nested(files.named("utils/config/models/", "utils/schemas/"), "AxolotlInputConfig")
    for path, text in files.named("integrations/").items():
        named = re.search(r"def get_input_args.*?axolotl\.integrations\.[\w.]+\.(\w+)", text, re.DOTALL)
        if named:
            found |= nested(files.named("/".join(path.split("/")[:2]) + "/"), named[1])
    return {"": found}


def llamafactory(files: Files) -> Groups:
    """The argument classes."""
    classes = files.among("hparams/")
    return {"": {field for name in classes for field in all_fields(classes, name)}}


def ms_swift(files: Files) -> Groups:
    """The argument classes of all commands, and those of the Megatron trainer."""
    groups = {}
    for group, places in (
        ("", ("llm/argument", "llm/utils/argument", "arguments/", "trainers/", "rlhf_trainers/")),
        ("megatron", ("megatron/argument", "llm/argument", "arguments/base_args/")),
    ):
        classes = files.among(*places)
        groups[group] = {field for name in classes for field in all_fields(classes, name)}
    return groups if files.among("megatron/argument") else {"": groups[""]}


def lmdeploy(files: Files) -> Groups:
    """The options of `lmdeploy serve api_server` and of the helpers of all commands."""
    return {"": {name for path in ("cli/serve.py", "cli/utils.py") for name in options(files.tree(path))}}


def oumi(files: Files) -> Groups:
    """The dataclasses, nested."""
    return {"": of_schema(oumi_schema.oumi(files))}


def litgpt(files: Files) -> Groups:
    """The parameters of the scripts."""
    return {"": of_schema(litgpt_schema.litgpt(files))}


def llm_foundry(files: Files) -> Groups:
    """`TrainConfig`, nested."""
    return {"": nested(files.named("utils/config_utils.py", "command_utils/train.py"), "TrainConfig")}


def olmo(files: Files) -> Groups:
    """`TrainConfig`, nested."""
    return {"": nested(files.named("config.py"), "TrainConfig")}


def openrlhf(files: Files) -> Groups:
    """The options of the training programs."""
    return {"": of_schema(openrlhf_schema.openrlhf(files))}


def torchtitan(files: Files) -> Groups:
    """`--section.name` of argparse before 0.1, then the nested `JobConfig`; TOML ended with 0.3."""
    found = {
        f"{section}.{name}"
        for section, name in re.findall(r"\"--([a-z_0-9]+)\.([a-z_0-9]+)\"", files.text("config_manager.py") or "")
    }
    found |= nested(files.named("config_manager.py", "config/job_config.py"), "JobConfig")
    if not found:
        raise LookupError("no TOML any more")
    return {"": found}


def verl_keys(files: Files) -> Groups:
    """The trainer configs put together, without the keys that they still have and no code reads."""
    found = {"": of_schema(verl.verl(files))}
    sft = of_schema(verl.verl_sft(files, files))
    return {**found, "sft": sft}


def automodel(files: Files) -> Groups:
    """The config classes and what the recipes read."""
    return {"": of_schema(nemo_automodel.nemo_automodel(files))}


def nemo_rl_keys(files: Files) -> Groups:
    """The TypedDicts of the policy, and the keys of the configs that are shipped."""
    return {"": of_schema(nemo_rl.nemo_rl(files))}


def tgi_options(files: Files) -> Groups:
    """The options of the launcher."""
    return {"": set(tgi.tgi(files)["properties"])}


def megatron(files: Files) -> Groups:
    """The options of the training scripts; since 0.16 also the fields of the dataclasses that are made groups."""
    texts = {path: files.need(path) for path in files.paths}
    grouped = {name for text in texts.values() for name in re.findall(r"ArgumentGroupFactory\(\s*(\w+)", text)}
    classes = files.among("megatron/")
    grouped |= {ast.unparse(base) for name in grouped for cls in classes.get(name, ()) for base in cls.bases}
    found: set[str] = set()
    for path, text in texts.items():
        if not re.search(r"/core/|config", path) or any(re.search(rf"class {name}\b", text) for name in grouped):
            found |= megatron_schema.options(text)[0]
    return {"": found}


def torchtune_keys(files: Files) -> Groups:
    """What the recipes read at the top of a config."""
    return {"": torchtune.recipe_keys(files)}


def autotrain(files: Files) -> Groups:
    """The parameters of the tasks that train a language model, together: a parser warns of what its task lacks."""
    classes = files.among("trainers/")
    named = [name for name in autotrain_schema.MODELS if name in classes]
    return {"": {field for name in named for field in all_fields(classes, name)}}


class Package(NamedTuple):
    """Where a package's keys stand.

    keys     reads them
    files    the paths that are kept, as a regular expression below `root`
    former   the package that it was called before, whose root is its name
    tags     the repository and how its tags spell a release, where the index has no files of it
    """

    keys: Callable[[Files], Groups]
    root: str
    files: str
    former: str = ""
    repository: str = ""
    tags: str = ""


_VLLM = (
    r"(engine/.*arg.*|engine/async_llm_engine|scripts|entrypoints/.*"
    r"|model_executor/layers/quantization/__init__|config|config/cache)\.py"
)
_SWIFT = r"llm/(argument/.*|utils/argument)|arguments/.*|(rlhf_)?trainers/.*arg.*|megatron/.*argument.*"
_MEGATRON = rf"{megatron_schema.FILES.pattern.strip('^$')}|megatron/training/\w+_config\.py"
_VERL = r"verl/(trainer/.*\.(yaml|py)|workers/.*\.py|experimental/.*\.yaml|.*config.*\.(py|yaml))"

PACKAGES = {
    "vllm": Package(vllm, "vllm/", _VLLM),
    "sglang": Package(sglang, "sglang/", r"srt/(server_args|arg_groups/.*)\.py"),
    "transformers": Package(transformers, "transformers/", r"training_args(_seq2seq)?\.py"),
    "trl": Package(trl, "trl/", r"(trainer|scripts|commands|experimental)/.*\.py"),
    "accelerate": Package(accelerate, "accelerate/", r"commands/(launch|config/.*)\.py"),
    "deepspeed": Package(deepspeed, "deepspeed/", "|".join(map(re.escape, DEEPSPEED))),
    "axolotl": Package(axolotl, "axolotl/", r"(utils/(config|schemas)/.*|integrations/.*)\.py"),
    "llamafactory": Package(llamafactory, "llamafactory/", r"hparams/.*\.py", former="llmtuner"),
    "ms-swift": Package(ms_swift, "swift/", rf"({_SWIFT})\.py"),
    "lmdeploy": Package(lmdeploy, "lmdeploy/", r"cli/.*\.py"),
    "oumi": Package(oumi, "oumi/", r"core/configs/.*\.py"),
    "litgpt": Package(litgpt, "litgpt/", r"(finetune/.*|pretrain|args|config)\.py"),
    "llm-foundry": Package(llm_foundry, "llmfoundry/", r"(utils/config_utils|command_utils/.*)\.py"),
    "ai2-olmo": Package(olmo, "olmo/", r"config\.py"),
    "openrlhf": Package(openrlhf, "openrlhf/", r"cli/train_.*\.py"),
    "torchtitan": Package(torchtitan, "torchtitan/", r"(config_manager|config/job_config)\.py"),
    "verl": Package(verl_keys, "", _VERL),
    "nemo-automodel": Package(automodel, "nemo_automodel/", r".*\.py"),
    "nemo-rl": Package(nemo_rl_keys, "", r"nemo_rl/.*\.py|examples/.*\.yaml", repository="NVIDIA-NeMo/RL", tags="v{}"),
    "tgi": Package(
        tgi_options, "launcher/src/", r"main\.rs", repository="huggingface/text-generation-inference", tags="v{}"
    ),
    "megatron-core": Package(megatron, "", _MEGATRON, repository="NVIDIA/Megatron-LM", tags="core_v{}"),
    "torchtune": Package(torchtune_keys, "", r"recipes/.*\.py"),
    "autotrain-advanced": Package(autotrain, "autotrain/", r"trainers/.*params\.py"),
}  # fmt: skip

UNREAD = {
    "llama-cpp-python": "its options are llama.cpp's, of which each sdist holds a whole copy",
    "trtllm": "the index holds a stub that fetches the wheel",
}
"""Packages with keys of ours whose releases no table holds, and why."""
