"""Damaged models: whatever is wrong with them, the answer is an ``AccelcError``, and soon."""

import random
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import accelc
from accelc.artifact import Artifact
from accelc.inputs import random_inputs
from accelc.isa.errors import AccelcError

MODEL = Path(__file__).parents[1] / "models" / "digits_resnet8_int8.onnx"
LIMIT_SECONDS = 10.0
MUTATIONS = (
    "bytes", "names", "truncated", "attributes", "operands", "constants", "nodes", "heads"
)  # fmt: skip


def test_every_mutation_is_tried(hostile: ModuleType) -> None:
    assert tuple(hostile.MUTATIONS) == MUTATIONS


@pytest.mark.parametrize("name", MUTATIONS)
def test_damaged_models(name: str, hostile: ModuleType, tmp_path: Path) -> None:
    mutate: Callable[[random.Random, bytes], bytes] = hostile.MUTATIONS[name]
    source, path = MODEL.read_bytes(), tmp_path / "damaged.onnx"
    # it has no operands that could become constants: all its mutants are itself
    for seed in range(1 if name == "operands" else 40):
        path.write_bytes(mutate(random.Random(seed), source))
        target, device = (("cpu", "cpu"), ("vta", "functional"))[seed % 2]
        print(f"{name} seed {seed}")
        start = time.process_time()
        try:
            artifact = accelc.compile(path, target, "1x8x8")
            session = accelc.load(Artifact.from_bytes(artifact.to_bytes()), device)
            session.run(random_inputs(session.inputs, seed))
        except AccelcError as error:
            assert "\n" not in str(error)
        assert time.process_time() - start < LIMIT_SECONDS
