"""The exemptions from the laws: each names an op that there is, gives a reason, and is counted."""

from pathlib import Path

import pytest

from headrace._src.graph.definition import definitions
from tests.laws import exemptions

# One more exemption is one more number here: a law mustn't lose its grip unnoticed.
COUNTS = {
    "samples": 207,
    "gradient": 49,
    "gradient of some uses": 11,
    "bad input": 1,
    "what TensorFlow refuses": 0,
}


def test_exemptions_are_counted():
    assert {law: len(found) for law, found in exemptions.ALL.items()} == COUNTS


@pytest.mark.parametrize("law", exemptions.ALL)
def test_exemptions_name_ops_and_give_reasons(law):
    for op_type, reason in exemptions.ALL[law].items():
        assert op_type in definitions()
        text = reason if isinstance(reason, str) else reason[1]
        assert len(text) > 10, op_type
        for word in text.split():
            if word.startswith("tests/") and "*" not in word:
                assert Path(word.rstrip(",")).exists(), f"{op_type}: {word}"
