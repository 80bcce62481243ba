"""Write `schemas/sglang.json`, `tgi.json`, `lmdeploy.json` and `trtllm.json` from upstream sources, read statically.

    pip download --no-deps -d FOLDER sglang==0.5.23 sglang==0.5.4 ... lmdeploy==0.18.0
    git -C text-generation-inference show v3.3.7:launcher/src/main.rs > FOLDER/text-generation-launcher-3.3.7.rs
    python -m scripts.serving_schemas FOLDER

The options of `trtllm-serve` and `trtllm-build` stand in `scripts/trtllm_options.json`: no archive of TensorRT-LLM is
small enough to read here. Options of one meaning share `x-option`, the first of their spellings.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

from scripts.argument_schemas import add_removed, dump, schema
from scripts.argument_source import Json, Package, annotation, literal, option_names

SGLANG = "0.5.23"
FORMER_SGLANG = ["0.5.4", "0.4.9", "0.4.6.post5"]
LMDEPLOY = "0.18.0"
FORMER_LMDEPLOY = ["0.14.0"]
TGI = "3.3.7"
NAMESPACES = (
    "device", "disagg", "exec_", "lora", "memory", "mm", "model", "observability", "parallel", "schedule", "serving",
    "spec",
)  # fmt: skip
"""The modules of sglang/srt/arg_groups/fields that `ServerArgs` is assembled from."""


def sglang(folder: Path) -> Json:
    """Every long option of `sglang serve`: one for each annotated field of a namespace, and its aliases."""
    package = Package(folder, "sglang", SGLANG)
    properties: dict[str, Json] = {}
    for module in NAMESPACES:
        for cls in package.classes(f"srt/arg_groups/fields/{module}.py").values():
            for node in cls.body:
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    properties.update(field_options(node, node.target.id))
    for name in option_names(package, "srt/server_args.py"):
        properties.setdefault(name, {})
    former: dict[str, dict[str, Any]] = {
        f"sglang {version}": {
            name: {} for name in option_names(Package(folder, "sglang", version), "srt/server_args.py")
        }
        for version in FORMER_SGLANG
    }
    add_removed(properties, former)
    return schema("SGLang server arguments", f"sglang {SGLANG}", properties, "refused")


def field_options(node: ast.AnnAssign, name: str) -> dict[str, Json]:
    """The options of one field `name: A[type, Arg(...)] = default`; none where it is not for the command line."""
    noted = node.annotation
    if not (isinstance(noted, ast.Subscript) and ast.unparse(noted.value) in ("A", "Annotated")):
        return {}
    parts = noted.slice.elts if isinstance(noted.slice, ast.Tuple) else [noted.slice]
    argument = next((part for part in parts[1:] if isinstance(part, ast.Call)), None)
    said = {k.arg: k.value for k in argument.keywords} if argument is not None else {}
    if name.startswith("_") or ast.unparse(said.get("no_cli", ast.Constant(False))) == "True":
        return {}
    found = annotation(parts[0], {})
    if "type_parser" in said and found:
        found = {"type": list(dict.fromkeys([*listed(found["type"]), "string"]))}
    known, default = literal(node.value, {}) if node.value is not None else (False, None)
    if known:
        found["default"] = default
    written = ast.literal_eval(said["cli_name"]) if "cli_name" in said else "--" + name.replace("_", "-")
    aliases = ast.literal_eval(said["aliases"]) if "aliases" in said else []
    names = [option[2:] for option in (written, *aliases) if option.startswith("--")]
    same = {"x-option": names[0]} if len(names) > 1 else {}
    return {option: {**found, **same} for option in names}


def listed(value: object) -> list[object]:
    """A value as a list."""
    return value if isinstance(value, list) else [value]


_RUST = re.compile(
    r"^    #\[clap\(([^\n]*)\)\]\n(?:    #\[[^\n]*\]\n|    ///[^\n]*\n)*    ([a-z_0-9]+): ([^\n]+),$", re.MULTILINE
)
_RUST_TYPES = {
    "String": "string", "usize": "integer", "u16": "integer", "u32": "integer", "u64": "integer", "f32": "number",
    "bool": "boolean",
}  # fmt: skip


def tgi(folder: Path) -> Json:
    """Every option of `text-generation-launcher`: fields of clap's `Args`; those with `env` are variables, too."""
    text = (folder / f"text-generation-launcher-{TGI}.rs").read_text(encoding="utf-8")
    body = text[text.index("struct Args {") :]
    body = body[: body.index("\n}\n")]
    properties: dict[str, Json] = {}
    for clap, name, kind in _RUST.findall(body):
        inner = re.sub(r"^(?:Option|Vec)<(?:Vec<)?|>+$", "", kind)
        found: Json = {"type": _RUST_TYPES.get(inner, "string")}
        if "Vec<" in kind:
            found = {"type": ["array", "string", "integer"]}
        default = re.search(r'default_value = "([^"]*)"', clap)
        if default:
            text_ = default[1]
            found["default"] = {"integer": int, "number": float}.get(str(found["type"]), str)(text_)
        if re.search(r"\benv\b", clap):
            found["x-variable"] = name.upper()
        properties[name.replace("_", "-")] = found
    return schema("text-generation-launcher", f"text-generation-inference {TGI}", properties, "refused")


def lmdeploy(folder: Path) -> Json:
    """Every option of `lmdeploy serve api_server`: what its parser and the helpers that it calls add."""
    properties = lmdeploy_options(Package(folder, "lmdeploy", LMDEPLOY))
    former = {f"lmdeploy {v}": lmdeploy_options(Package(folder, "lmdeploy", v)) for v in FORMER_LMDEPLOY}
    add_removed(properties, former)
    return schema("LMDeploy api_server", f"lmdeploy {LMDEPLOY}", properties, "refused")


def lmdeploy_options(package: Package) -> dict[str, Json]:
    """The options of `SubCliServe.add_parser_api_server`, those of `ArgumentHelper` included."""
    helpers = {
        node.name: node
        for cls in package.classes("cli/utils.py").values()
        for node in cls.body
        if isinstance(node, ast.FunctionDef)
    }
    serve = package.classes("cli/serve.py")["SubCliServe"]
    parser = next(n for n in serve.body if isinstance(n, ast.FunctionDef) and n.name == "add_parser_api_server")
    found: dict[str, Json] = {}
    for node in ast.walk(parser):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "add_argument":
                found.update(added(node))
            elif ast.unparse(node.func.value) == "ArgumentHelper" and node.func.attr in helpers:
                for inner in ast.walk(helpers[node.func.attr]):
                    if isinstance(inner, ast.Call) and ast.unparse(inner.func).endswith("add_argument"):
                        found.update(added(inner))
    return found


def added(call: ast.Call) -> dict[str, Json]:
    """The option of one `add_argument` call with its type and default."""
    names = [ast.literal_eval(arg) for arg in call.args if isinstance(arg, ast.Constant)]
    said = {k.arg: k.value for k in call.keywords}
    kinds = {"int": "integer", "float": "number", "str": "string"}
    kind = kinds.get(ast.unparse(said["type"])) if "type" in said else None
    found: Json = {"type": kind} if kind else {}
    if "action" in said and "store_true" in ast.unparse(said["action"]):
        found = {"type": "boolean"}
    if "nargs" in said:
        found = {"type": ["array", *([kind] if kind else ["string"])]}
    known, default = literal(said["default"], {}) if "default" in said else (False, None)
    if known:
        found["default"] = default
    return {name.removeprefix("--").replace("_", "-"): dict(found) for name in names if not re.match("-[a-z]", name)}


def trtllm(_folder: Path) -> Json:
    """The options of `trtllm-serve` and `trtllm-build`, and the nested sections of a `--config` YAML."""
    source = json.loads((Path(__file__).parent / "trtllm_options.json").read_text(encoding="utf-8"))
    return schema("TensorRT-LLM", source["upstream"], source["options"], source["unknown"])


MAKERS = {"sglang": sglang, "tgi": tgi, "lmdeploy": lmdeploy, "trtllm": trtllm}


def main(folder: Path) -> None:
    """Write the schemas."""
    target = Path(__file__).resolve().parent.parent / "schemas"
    for name, build in MAKERS.items():
        value = build(folder)
        (target / f"{name}.json").write_text(dump(value), encoding="utf-8")
        print(f"schemas/{name}.json: {len(value['properties'])} keys of {value['x-upstream']}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
