"""A requirement says what its spelling says: one release, a range, or nothing."""

import pytest

from gpulint.repository.requirement import conda, poetry, requirement


def said(found):
    return None if found is None else str(found)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("deepspeed==0.10.1", "deepspeed==0.10.1"),
        ("  vllm[audio] == 0.8.5.post1  # the one that works", "vllm==0.8.5.post1"),
        ("torch==2.6.0+cu124", "torch==2.6.0"),
        ("torch (>=2.1,<2.5)", "torch>=2.1,<2.5"),
        ("transformers===4.52.3", "transformers==4.52.3"),
        ("Transformers_Engine==1", None),
        ("transformers~=4.52.3", "transformers>=4.52.3,<4.53"),
        ("transformers~=4.52", "transformers>=4.52,<5"),
        ("trl==0.9.*", "trl>=0.9,<0.10"),
        ("trl!=0.9.*", "trl"),
        ("trl", "trl"),
        ("LLaMA-Factory==0.9.1", "llamafactory==0.9.1"),
        ("numpy==1.26", None),
        ('vllm==0.8.5; sys_platform == "linux"', "vllm==0.8.5"),
        ("vllm==0.8.5; sys_platform == 'darwin'", None),
        ("torch==2.2; python_version < '3.9'", None),
        ("torch==2.6; python_version >= '3.9'", "torch==2.6"),
        ("trl @ git+https://github.com/huggingface/trl.git@v0.18.0", "trl==0.18.0"),
        ("trl @ git+https://github.com/huggingface/trl.git@69ad852e5654a77f1695eb4c608906fe0c7e8624", "trl"),
        ("git+https://github.com/huggingface/trl@v0.18.0", "trl==0.18.0"),
        ("-e git+https://github.com/me/mine.git@v0.18.0#egg=trl", "trl==0.18.0"),
        ("vllm @ https://example.org/w/vllm-0.6.3+cu118-cp38-abi3-manylinux1_x86_64.whl", "vllm==0.6.3"),
        ("torch==2.1.0 --hash=sha256:00", "torch==2.1.0"),
        ("x" * 2000, None),
    ],
)
def test_pip(text, says):
    assert said(requirement(text, 7)) == says


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("4.40.0", "transformers==4.40.0"),
        ("^4.40", "transformers>=4.40,<5"),
        ("^0.4.1", "transformers>=0.4.1,<0.5"),
        ("~4.40.2", "transformers>=4.40.2,<4.41"),
        (">=4.40,<4.45", "transformers>=4.40,<4.45"),
        ("*", "transformers"),
    ],
)
def test_poetry(spec, says):
    assert said(poetry("transformers", spec, 7)) == says


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pytorch=2.1.0", "torch==2.1.0"),
        ("pytorch=2.1", "torch>=2.1,<2.2"),
        ("pytorch::pytorch=2.1.0=py3.10_cuda12.1", "torch==2.1.0"),
        ("conda-forge::transformers>=4.40", "transformers>=4.40"),
        ("pytorch", "torch"),
        ("python=3.10", None),
    ],
)
def test_conda(text, says):
    assert said(conda(text, 7)) == says
