"""How servers spell quantisation: every name of a table is a packing whose bytes are known, and of its bits."""

from __future__ import annotations

import pytest

from gpulint.estimator.states.storage import packing
from gpulint.formats.serving import sglang, tgi, trtllm, vllm
from gpulint.job.job import Quantization

TABLES = {
    "trtllm": trtllm.QUANTIZATIONS,
    "tgi": tgi.QUANTIZATIONS,
    "vllm": vllm._QUANTIZATIONS,
    "sglang": sglang.QUANTIZATIONS,
}
NAMES = [(engine, name) for engine, table in TABLES.items() for name in table]


@pytest.mark.parametrize(("engine", "name"), NAMES)
def test_a_name_is_a_packing_of_its_bits(engine, name):
    method, bits = TABLES[engine][name]
    layout = packing(Quantization(method))
    assert layout is not None
    assert layout.bits == bits
    assert str(bits) in name or not any(sign.isdigit() for sign in name)
