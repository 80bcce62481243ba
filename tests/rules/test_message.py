from __future__ import annotations

import pytest

from gpulint.rules.expression import UNKNOWN
from gpulint.rules.message import HIDDEN, filled, is_secret, parts_of
from gpulint.rules.syntax import parse


class Values(dict):
    def get(self, path):
        return dict.get(self, path, UNKNOWN)


def message(text, **values):
    template = parts_of(text, lambda _, text: parse(text), lambda _, tree: "bytes" if tree == ["fact", "size"] else "")
    return filled(template, Values({name.replace("__", "."): value for name, value in values.items()}))


def test_placeholders_print_by_unit_and_braces_double():
    assert message("{{a}} {size} {1 + 2}", size=1 << 30) == "{a} 1.0 GiB 3"


def test_an_unknown_value_gives_no_message():
    assert message("{size}") is None


@pytest.mark.parametrize("text", ["{a", "a}", "{}", "{a b}"])
def test_broken_templates_are_refused(text):
    with pytest.raises(Exception, match=r"{|}|expression"):
        message(text, a=1)


@pytest.mark.parametrize("key", ["config.hf_token", "config.wandb_api_key", "config.db.password", "config.hub-token"])
def test_values_of_secret_keys_are_hidden(key):
    template = parts_of("{" + key.replace("hub-token", "hub_token") + "}", lambda _, text: parse(text), lambda *_: "")
    assert filled(template, Values({key.replace("-", "_"): "topsecret"})) == HIDDEN


def test_values_that_look_like_tokens_are_hidden():
    assert message("{config__model}".replace("__", "."), config__model="hf_abcdefghijk") == HIDDEN


@pytest.mark.parametrize("key", ["max_num_batched_tokens", "tokenizer", "pad_token_id", "max_new_tokens"])
def test_words_about_tokens_are_no_secrets(key):
    assert not is_secret(key, 5)
