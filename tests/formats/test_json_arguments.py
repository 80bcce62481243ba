import pytest

from gpulint.formats.core.arguments import Arguments
from gpulint.formats.serving.json_arguments import section
from gpulint.source.read import parse


def values(text):
    arguments = Arguments(parse(text, "vllm.yaml", "yaml").root, dashes=True)
    return {key: given.value for key, given in section(arguments, "mm_processor_kwargs").items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mm-processor-kwargs: {max_pixels: 5, size: {a: 1}}\n", {"max_pixels": 5, "size": {"a": 1}}),
        ("mm-processor-kwargs: '{\"max_pixels\": 5}'\n", {"max_pixels": 5}),
        ("mm-processor-kwargs.max_pixels: 5\n", {"max_pixels": 5}),
        ("mm-processor-kwargs.size.a: 1\nmm_processor_kwargs.size.b.c: 2\n", {"size": {"a": 1, "b": {"c": 2}}}),
        ("mm-processor-kwargs: {size: {a: 1}, n: 3}\nmm-processor-kwargs.size.a: 2\n", {"size": {"a": 2}, "n": 3}),
        ("mm-processor-kwargs: '{'\nother.max_pixels: 5\nmm-processor-kwargs.: 1\n", {}),
        ("mm-processor-kwargs: 7\n", {}),
    ],
)
def test_every_way_to_state_a_mapping(text, expected):
    assert values(text) == expected


def test_what_is_too_deep_or_too_long_is_not_read():
    assert values("mm-processor-kwargs: '" + '{"a":' * 3000 + "1" + "}" * 3000 + "'\n") == {}
    assert values("mm-processor-kwargs: '" + '{"a": "' + "x" * 20_000 + '"}' + "'\n") == {}
    assert list(values("mm-processor-kwargs.a" + ".b" * 400 + ": 1\n")) == ["a"]


def test_a_key_of_its_own_is_where_the_value_stands():
    arguments = Arguments(parse("a: {b: 1}\na.c: 2\n", "vllm.yaml", "yaml").root)
    found = section(arguments, "a")
    assert (found["b"].key, found["c"].key) == ("a.b", "a.c")
