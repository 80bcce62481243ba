from __future__ import annotations

import pytest

from gpulint.rules.explain import index_page, page
from gpulint.rules.index import rule_files

FILES = rule_files()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.id)
def test_a_page_says_what_its_file_says(file):
    text = page(file)
    assert text.startswith(f"# {file.id} {file.name}\n")
    assert " ".join(file.source["why"].split()).split(". ")[0] in text
    assert f"ignore[{file.id}]" in text
    for example in file.source["examples"]:
        if isinstance(example["config"], str):
            assert example["config"].strip() in text


def test_the_index_lists_every_rule_once():
    lines = index_page(FILES).splitlines()
    for file in FILES:
        assert sum(line.startswith(f"| [{file.id}]") for line in lines) == 1
