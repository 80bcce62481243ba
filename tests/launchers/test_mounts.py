"""Configs that stand in ConfigMaps: opened where a pod mounts them, with the places of the manifest."""

from __future__ import annotations

import pytest

from gpulint.formats.core.registry import find
from gpulint.launchers.embedded import embedded
from gpulint.source.edit.edit import apply
from gpulint.source.read import parse

MANIFEST = """apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data:
  serve.yaml: |
    model: org/model
    max-model-len: 8192   # short
    served-model-name: [a, "b"]
  notes.txt: nothing
---
apiVersion: v1
kind: Pod
metadata: {name: chat}
spec:
  containers:
    - name: server
      image: vllm/vllm-openai:v0.9.1
      args: [--config, /etc/vllm/serve.yaml, --tensor-parallel-size=2]
      volumeMounts: [{name: settings, mountPath: /etc/vllm}]
  volumes: [{name: settings, configMap: {name: settings}}]
"""


def test_a_mounted_config_is_read_with_its_places(launched):
    (opened,) = launched(MANIFEST).opened
    job = opened.reading.job
    assert (job.model, job.inference.max_model_len, job.parallelism.tensor) == ("org/model", 8192, 2)
    span = job.origins["inference.max_model_len"].span
    assert (span.line, MANIFEST.splitlines()[span.line - 1][span.column - 1 : span.end_column - 1]) == (7, "8192")


def test_an_edit_changes_the_text_of_the_config_map(launched):
    (opened,) = launched(MANIFEST).opened
    edits = find("vllm").edits(opened.reading, {"inference.max_model_len": 4096})
    assert apply(MANIFEST, edits) == MANIFEST.replace("8192", "4096")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("configMap: {name: settings}", "configMap: {name: settings, items: [{key: serve.yaml, path: serve.yaml}]}"),
        ("mountPath: /etc/vllm", "mountPath: /etc/vllm/serve.yaml, subPath: serve.yaml"),
    ],
)
def test_items_and_sub_paths(launched, old, new):
    assert launched(MANIFEST.replace(old, new)).opened[0].reading.job.model == "org/model"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("configMap: {name: settings}", "configMap: {name: other}"),
        ("configMap: {name: settings}", "configMap: {name: settings, items: [{key: notes.txt, path: serve.yaml}]}"),
        ("mountPath: /etc/vllm", "mountPath: /opt"),
        ("mountPath: /etc/vllm", "mountPath: /etc/vllm/serve.yaml, subPath: notes.txt"),
    ],
)
def test_what_is_not_mounted_is_not_in_the_project(launched, old, new):
    found = launched(MANIFEST.replace(old, new))
    assert found.opened == []
    assert found.reason == "starts vllm with a config that is not in the project"


@pytest.mark.parametrize(
    "scalar",
    [
        "|\n  a: 1\n  b: {c: [x, y]}\n",
        ">-\n  {a: 1, b:\n  {c: [x, y]}}\n",
        '"a: 1\\nb: {c: [x, y]}"',
        "'{a: 1, b: {c: [x, y]}}'",
    ],
)
def test_places_of_embedded_text(scalar):
    document = parse(f"text: {scalar}\n", "f.yaml", "yaml")
    found = embedded(document, document.root.get("text"))
    assert found.root.plain() == {"a": 1, "b": {"c": ["x", "y"]}}
    for item in found.root.find("b.c").value.items():
        assert document.text[item.span.start : item.span.end] == item.value


@pytest.mark.parametrize("text", ["text: 3", "text: 'a: ['", "text: '- a'", "text: ''", "text: 'plain words'"])
def test_text_without_a_mapping(text):
    document = parse(text, "f.yaml", "yaml")
    assert embedded(document, document.root.get("text")) is None


def test_shared_nodes_stay_shared():
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 6)]
    text = "text: |\n" + "".join(f"  {line}\n" for line in lines)
    document = parse(text, "f.yaml", "yaml")
    found = embedded(document, document.root.get("text"))
    last = found.root.get("a5").items()
    assert last[0] is last[1]
