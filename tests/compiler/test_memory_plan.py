import numpy as np

from accelc.compiler.memory_plan import ALIGNMENT_BYTES, ConstantPool, Lifetime, plan_memory


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
