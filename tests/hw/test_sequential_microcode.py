"""The micro-assembler, the microprogram's limits, and the sequencer's operations one by one."""

import random
from dataclasses import replace

import pytest
from amaranth.sim import Simulator, SimulatorContext

from accelc.hw.sequential.assembler import MicrocodeError, assemble
from accelc.hw.sequential.microprogram import microprogram
from accelc.hw.sequential.sequencer import Sequencer
from accelc.hw.sequential.words import VARIABLE_WORDS, WORDS, Condition, word_names
from accelc.isa.config import PRESETS, AccelConfig

SEQUENTIAL = PRESETS["1x4x4s"]
NOP = 0xC000


def words(text: str) -> tuple[int, ...]:
    return assemble(text, {}).words


@pytest.mark.parametrize(
    "config",
    [
        SEQUENTIAL,
        replace(SEQUENTIAL, name="plain", window=False),
        replace(SEQUENTIAL, name="wide", block_out=8),
        replace(SEQUENTIAL, name="bus", block_in=8, block_out=16, bus_bytes=8),
    ],
    ids=lambda c: c.name,
)
def test_the_microprogram_fits(config: AccelConfig) -> None:
    program = microprogram(config)
    assert program.labels["reset"] == 0
    assert len(program.words) <= 1024
    names = word_names()
    assert all(0 <= word < WORDS for word in names.values())
    assert not set(program.constants) & set(VARIABLE_WORDS)


def test_a_load_does_not_overtake_a_store() -> None:
    assert words("st t0\n ld t0")[1] == NOP
    assert len(words("st t0\n ld t1")) == 2
    # the index leads to tables, never to variables
    assert len(words("st tokens^x\n ld t0")) == 2
    assert words("st tokens^x\n ld tokens+4")[1] == NOP
    assert words("st index\n ld depths^x")[1] == NOP
    assert words("exs 3 word4\n ld word4")[1] == NOP


def test_fields_come_from_the_definition_of_instructions() -> None:
    # n1 of STORE is a word, inp of GEMM is 2 bits up in words 1 and 2
    names = word_names()
    assert words(".fields STORE\n get n1") == (names["word5"],)
    low, high = words(".fields GEMM\n get inp")
    assert low == 0x4000 | names["word1"]
    assert high == 0x4000 | 2 << 10 | names["word2"]
    # the word before is in H already
    assert len(words(".fields GEMM\n get inp\n get wgt")) == 3
    assert len(words(".fields GEMM\n get inp\n again:\n get wgt")) == 4


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("jump here", "'jump here' is no operation"),
        ("ld nothing", "there is no word 'nothing'"),
        ("ld #nothing", "there is no constant 'nothing'"),
        ("j nowhere", "there is no label 'nowhere'"),
        ("here:\n here:", "label 'here' is there twice"),
        ("get n0", "get needs .fields before it"),
        (".fields LOAD\n get n9", "LOAD has no field 'n9'"),
        (".fields LOAD\n get dram", "dram has 32 bits: take its halves"),
        (".fields LOAD\n then n1", "then n1 does not follow on the field before"),
        ("ld t0^y", "'t0^y': only x is an index"),
    ],
)
def test_mistakes_are_named(text: str, what: str) -> None:
    with pytest.raises(MicrocodeError, match=what.replace("^", r"\^")):
        assemble(text, {})


def test_too_many_words_and_constants_are_refused() -> None:
    with pytest.raises(MicrocodeError, match="1025 words, jumps reach 1024"):
        assemble("nop\n" * 1025, {})
    with pytest.raises(MicrocodeError, match="no word is left for the constant"):
        assemble("\n".join(f"ld #{value}" for value in range(300)), {})


def run(text: str, values: dict[str, int], cycles: int = 400) -> dict[str, int]:
    """What a program that ends in a loop at ``end`` leaves in the named words."""
    program = assemble(f"{text}\nend:\n j end", {})
    names = word_names()
    contents = [0] * WORDS
    for word, value in program.constants.items():
        contents[word] = value
    for name, value in values.items():
        contents[names[name]] = value
    sequencer = Sequencer(program, contents)
    state = dict(enumerate(contents))
    simulator = Simulator(sequencer)
    simulator.add_clock(1e-8)

    async def watch(ctx: SimulatorContext) -> None:
        ctx.set(sequencer.time, 0x1234)
        ctx.set(sequencer.traffic, 0x5678)
        ctx.set(sequencer.conditions[Condition.MOMENT], 1)
        for _ in range(cycles):
            _, _, en, addr, data = await ctx.tick().sample(
                sequencer.written.en, sequencer.written.addr, sequencer.written.data
            )
            if en:
                state[addr] = data

    simulator.add_testbench(watch)
    simulator.run()
    return {name: state[names[name]] for name in names if names[name] in VARIABLE_WORDS}


def test_arithmetic_and_extraction() -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(4):
        a, b = (rng.randrange(1 << 32) for _ in range(2))
        shift = rng.randrange(16)
        values = {"t0": a & 0xFFFF, "t1": a >> 16, "k": b & 0xFFFF, "now": b >> 16}
        left = run(
            f"""
            ld t0
            add k
            st link
            ld t1
            adc now
            st back
            ld t0
            sub k
            st before
            ld t1
            sbc now
            st delta
            ld t0
            and k
            st due
            ldh t0
            ext {shift} t1
            st patience
            """,
            values,
        )
        total, difference = a + b & 0xFFFF_FFFF, a - b & 0xFFFF_FFFF
        assert left["link"] | left["back"] << 16 == total
        assert left["before"] | left["delta"] << 16 == difference
        assert left["due"] == a & b & 0xFFFF
        assert left["patience"] == a >> shift & 0xFFFF


def test_jumps_calls_index_and_time() -> None:
    left = run(
        """
            ld #5
        loop:
            st k
            ld t0
            add #3
            st t0
            ld k
            sub #1
            jn zero loop
            call twice
            stt link
            stb back
            ld #2
            st index
            ld #77
            st before^x             ; exclusive or: two words on or back
            j moment there
            st due
        there:
            jn moment end
            ld #9
            st before
            j end
        twice:
            ld t0
            add t0
            st t1
            ld link
            ret
        """,
        {"t0": 1},
    )
    names = word_names()
    assert left["t0"] == 16 and left["t1"] == 32
    assert (left["link"], left["back"]) == (0x1234, 0x5678)
    assert left["due"] == 0 and left["before"] == 9
    moved = [name for name in left if names[name] == names["before"] ^ 2]
    assert moved and all(left[name] == 77 for name in moved)
