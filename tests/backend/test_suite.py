"""ONNX's own backend tests: each passes, on the tier that is stated here, or is excluded by name.

``accelc suite`` prints the same as a table.
"""

from pathlib import Path

import onnx
import pytest

from accelc import suite

#: Tests that need ``onnx.reference`` for some node, of the onnx whose tests they are.
REFERENCE = frozenset((Path(__file__).parent / "reference_tier.txt").read_text().split())
VERSION = "1.23."
COUNTS = {"node": 1884, "simple": 23, "pytorch-converted": 82, "pytorch-operator": 35, "light": 9}
ALL = [(kind, name) for kind in suite.KINDS for name in sorted(suite.cases(kind))]

same_onnx = pytest.mark.skipif(
    not onnx.__version__.startswith(VERSION),
    reason=f"counts and tiers are those of onnx {VERSION}x, this is {onnx.__version__}",
)


@pytest.mark.parametrize(("kind", "name"), ALL, ids=[f"{kind}-{name}" for kind, name in ALL])
def test_case(kind: suite.Kind, name: str) -> None:
    outcome = suite.run_case(kind, name)
    if outcome.status == "excluded":
        pytest.skip(outcome.detail)
    assert outcome.status in ("native", "reference"), outcome.detail
    if onnx.__version__.startswith(VERSION):
        expected = "reference" if name in REFERENCE else "native"
        assert outcome.status == expected, f"{outcome.operators}; reference_tier.txt has the list"


@same_onnx
def test_the_suite_is_whole() -> None:
    assert {kind: len(suite.cases(kind)) for kind in suite.KINDS} == COUNTS
    names = {name for _, name in ALL}
    assert suite.EXCLUDED.keys() <= names
    assert names >= REFERENCE
    assert not REFERENCE & suite.EXCLUDED.keys()


@same_onnx
def test_what_is_promised_of_the_node_tests() -> None:
    """With every single test above: at least this many pass, so many without the reference."""
    nodes = suite.cases("node").keys()
    run = nodes - suite.EXCLUDED.keys()
    assert len(run) >= 1876
    assert len(run - REFERENCE) >= 1750
