"""The release that an image's tag states, also inside a longer tag."""

import pytest

from gpulint.repository.images import tag, versions


@pytest.mark.parametrize(
    ("image", "release"),
    [
        ("vllm/vllm-openai:v0.9.1", "0.9.1"),
        ("vllm/vllm-openai:0.9.1-cu128", "0.9.1"),
        ("vllm/vllm-openai:v0.8.5.post1", "0.8.5.post1"),
        ("vllm/vllm-openai:v0.10.2-aibrix0.5.1-nixl0.7.1-20251123", "0.10.2"),
        ("registry.example.com:5000/x/vllm-openai:kv-v0.8.4-20250401", "0.8.4"),
        ("x/vllm-openai:team_kv-v0.8.4.post2-20250401", "0.8.4.post2"),
        ("x/vllm-openai:cu124-v0.8.4-v0.8.4", "0.8.4"),
        ("x/vllm-openai:kv-v0.8.4-on-v0.9.1", None),  # which of them is vLLM's is not known
        ("x/vllm-openai:kv-cu12.4-20250401", None),
        ("x/vllm-openai:dev0.8.4", None),
        ("x/vllm-openai:20250401.1", None),
        ("x/vllm-openai:2025.04.01", None),
        ("x/vllm-openai:latest", None),
        ("x/v0.8.4/vllm-openai", None),
        ("x/vllm-openai@sha256:0123", None),
        ("x/vllm-openai:v0.8.4@sha256:0123", "0.8.4"),
    ],
)
def test_the_release_of_a_tag(image, release):
    assert tag(image) == release
    assert versions(image).get("vllm") == release


@pytest.mark.parametrize("image", ["lmcache/vllm-openai:v0.3.1", "me/my-vllm-fork:v0.8.4", "nginx:1.27"])
def test_images_whose_tag_is_not_the_release_of_an_engine(image):
    assert versions(image) == {}
