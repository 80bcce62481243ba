"""Whatever a config holds, checking it ends with findings or a SourceError."""

from __future__ import annotations

import json

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpulint.rules.index import rule_files
from gpulint.source.document import SourceError

CONFIGS = [
    yaml.safe_load(example["config"])
    for file in rule_files()
    for example in file.source["examples"]
    if isinstance(example["config"], str) and example.get("file", "").endswith("yaml" if "file" in example else "")
]
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**18), 10**18),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "auto", "null", "${X}", "bf16", "8", "x" * 300]),
    st.lists(st.one_of(st.none(), st.integers(), st.text(max_size=5)), max_size=3),
    st.dictionaries(st.text(max_size=5), st.one_of(st.none(), st.integers()), max_size=2),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_odd_values_anywhere_are_survived(check, data):
    config = dict(data.draw(st.sampled_from(CONFIGS)))
    for key in data.draw(st.lists(st.sampled_from(sorted(config)), max_size=3)):
        config[key] = data.draw(ODD)
    gpu, gpus = data.draw(st.sampled_from([None, "h100-80gb", "t4"])), data.draw(st.sampled_from([None, 1, 8]))
    try:
        check(json.dumps(config), gpu, gpus)
    except (KeyError, IndexError):
        raise
    except (SourceError, LookupError):
        return
