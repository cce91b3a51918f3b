import bisect
import time
from itertools import pairwise

import numpy as np
import pytest

from accelc.compiler.memory_plan import (
    ALIGNMENT_BYTES,
    ConstantPool,
    Lifetime,
    MemoryPlan,
    plan_memory,
)


def test_what_lives_at_the_same_time_never_overlaps() -> None:
    for seed in range(20):
        print(f"seed {seed}")
        rng = np.random.default_rng(seed)
        lifetimes = []
        for index in range(30):
            first = int(rng.integers(0, 20))
            last = first + int(rng.integers(0, 5))
            nbytes = int(rng.integers(1, 5000))
            lifetimes.append(Lifetime(name=f"t{index}", nbytes=nbytes, first=first, last=last))
        plan = plan_memory(lifetimes)
        for a in lifetimes:
            start = plan.addresses[a.name]
            assert start % ALIGNMENT_BYTES == 0
            assert start + a.nbytes <= plan.peak_bytes
            for b in lifetimes:
                other = plan.addresses[b.name]
                if a is not b and a.overlaps(b):
                    assert start + a.nbytes <= other or other + b.nbytes <= start
        assert plan.lower_bound_bytes <= plan.peak_bytes <= 2 * plan.lower_bound_bytes


def test_gaps_are_filled() -> None:
    spans = {"a": (1000, 0, 1), "b": (500, 1, 2), "c": (1000, 2, 3), "d": (64, 0, 3)}
    plan = plan_memory(
        [Lifetime(name=n, nbytes=b, first=f, last=e) for n, (b, f, e) in spans.items()]
    )
    assert plan.peak_bytes == 1024 + 512 + 64


def test_without_sharing_every_tensor_has_its_bytes() -> None:
    chain = [Lifetime(name=f"t{i}", nbytes=640, first=i, last=i + 1) for i in range(10)]
    plan = plan_memory(chain, share=False)
    assert plan.peak_bytes == 6400 and len(set(plan.addresses.values())) == 10


def _overlapping(plan: MemoryPlan, lifetimes: list[Lifetime]) -> bool:
    """Whether two tensors hold one byte at one step, by a walk over the steps."""
    alive: list[tuple[int, int]] = []
    born: dict[int, list[Lifetime]] = {}
    for tensor in lifetimes:
        born.setdefault(tensor.first, []).append(tensor)
    ends: dict[int, list[tuple[int, int]]] = {}
    for step in range(max(t.last for t in lifetimes) + 1):
        for tensor in born.get(step, []):
            start = plan.addresses[tensor.name]
            place = start, start + tensor.nbytes
            bisect.insort(alive, place)
            ends.setdefault(tensor.last, []).append(place)
        if any(a[1] > b[0] for a, b in pairwise(alive)):
            return True
        for place in ends.get(step, []):
            alive.remove(place)
    return False


@pytest.mark.parametrize("long", [0.0, 0.02, 1.0])
def test_twenty_thousand_tensors_take_seconds(long: float) -> None:
    """Chains, chains with far skips, and tensors that all live to the end."""
    rng = np.random.default_rng(1)
    count = 20_000 if long < 1 else 5_000
    lifetimes: list[Lifetime] = []
    for index in range(count):
        reach = int(rng.integers(1, count)) if rng.random() < long else int(rng.integers(1, 4))
        last = min(index + reach, count) if long < 1 else count
        nbytes = int(rng.integers(1, 1 << 16))
        lifetimes.append(Lifetime(name=f"t{index}", nbytes=nbytes, first=index, last=last))
    start = time.process_time()
    plan = plan_memory(lifetimes)
    assert time.process_time() - start < 20
    assert plan.lower_bound_bytes <= plan.peak_bytes <= 1.3 * plan.lower_bound_bytes
    if long < 1:
        assert not _overlapping(plan, lifetimes)


def test_a_chain_reuses_memory_and_reaches_the_bound() -> None:
    chain = [Lifetime(name=f"t{i}", nbytes=640, first=i, last=i + 1) for i in range(10)]
    plan = plan_memory(chain)
    assert plan.peak_bytes == plan.lower_bound_bytes == 1280


def test_constants_of_equal_bytes_share_an_address() -> None:
    pool = ConstantPool(100)
    first = pool.add("a", b"x" * 65)
    second = pool.add("b", b"y")
    assert (first, second, pool.end) == (128, 256, 320)
    assert pool.add("c", b"x" * 65) == first
    assert [name for name in pool.names] == ["a", "b"]
