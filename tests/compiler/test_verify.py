"""Every kind of fault, injected into good programs, is caught and named."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from accelc.compiler.accelerator import lower
from accelc.compiler.integer import ConvAttrs
from accelc.compiler.random_graphs import GraphBuilder, random_graph
from accelc.compiler.verify import verify
from accelc.isa.config import PRESETS, AccelConfig
from accelc.isa.errors import VerifyError
from accelc.isa.program import Program
from accelc.isa.spec import Alu, Finish, Gemm, Instruction, Load, Store, Unit

CONFIG = PRESETS["1x8x8"]


@pytest.fixture(scope="module")
def program() -> Program:
    b = GraphBuilder(CONFIG, np.random.default_rng(3))
    x = b.input((1, 16, 16, 16))
    conv = ConvAttrs(kernel=(3, 3), pads=(1, 1, 1, 1))
    y = b.conv(x, 24, conv, residual=True, table=True)
    return lower(b.graph(b.depthwise(y, conv)), CONFIG).program


def mutate(program: Program, index: int, **changes: int) -> Program:
    instructions = list(program.instructions)
    instructions[index] = replace(instructions[index], **changes)
    return replace(program, instructions=tuple(instructions))


def find(program: Program, kind: type[Instruction], **fields: int) -> int:
    for index, instruction in enumerate(program.instructions):
        if isinstance(instruction, kind) and all(
            getattr(instruction, k) == v for k, v in fields.items()
        ):
            return index
    raise AssertionError(f"no {kind.__name__} with {fields}")


def test_a_good_program_is_reported(program: Program) -> None:
    report = verify(program)
    assert sum(report.instructions.values()) == len(program.instructions) - 1
    assert report.tokens[Unit.LOAD, Unit.GEMM] > 0
    assert report.memory_bytes == program.memory_bytes


def test_every_token_matters(program: Program) -> None:
    """No token is superfluous: dropping any pair leaves two conflicting accesses unordered."""
    instructions = program.instructions
    for sender in Unit:
        for receiver in Unit:
            sent = [
                i
                for i, x in enumerate(instructions)
                if x.unit is sender and x.signal >> receiver & 1
            ]
            taken = [
                i for i, x in enumerate(instructions) if x.unit is receiver and x.wait >> sender & 1
            ]
            assert len(sent) == len(taken)
            for a, b in list(zip(sent, taken, strict=True))[:: max(1, len(sent) // 5)]:
                one = mutate(program, a, signal=instructions[a].signal & ~(1 << receiver))
                pair = mutate(one, b, wait=instructions[b].wait & ~(1 << sender))
                with pytest.raises(
                    VerifyError, match=r"while instruction|reads what nothing wrote"
                ):
                    verify(pair)


def test_a_missing_signal_is_a_deadlock(program: Program) -> None:
    index = find(program, Load, signal=1 << Unit.GEMM)
    with pytest.raises(VerifyError, match=r"deadlock .*\(GEMM\) waits for a token from load"):
        verify(mutate(program, index, signal=0))


def test_a_missing_wait_leaves_a_token(program: Program) -> None:
    gemms = [i for i, x in enumerate(program.instructions) if isinstance(x, Gemm) and x.wait & 1]
    index = gemms[-1]
    wait = program.instructions[index].wait & ~1
    with pytest.raises(VerifyError, match=r"1 token\(s\) from load to gemm are never taken"):
        verify(mutate(program, index, wait=wait))


def test_an_extra_signal_leaves_a_token(program: Program) -> None:
    index = max(i for i, x in enumerate(program.instructions) if isinstance(x, Store))
    with pytest.raises(VerifyError, match=r"1 token\(s\) from store to gemm are never taken"):
        verify(mutate(program, index, signal=1 << Unit.GEMM))


def test_an_extra_wait_is_a_deadlock(program: Program) -> None:
    index = find(program, Store)
    wait = program.instructions[index].wait | 1 << Unit.LOAD
    with pytest.raises(VerifyError, match=r"\(STORE\) waits for a token from load"):
        verify(mutate(program, index, wait=wait))


def test_a_full_counter_is_a_deadlock(program: Program) -> None:
    """ALU waits for GEMM, GEMM for the last LOAD, that one for room in ALU's counter."""
    config = replace(CONFIG, token_bits=2)
    alu = Alu(source=1, src=0, dst=0, wait=1 << Unit.GEMM)
    load = Load(buffer=3, row=0, dram=program.inputs[0].address, signal=1 << Unit.ALU)
    last = replace(load, signal=1 << Unit.GEMM)
    gemm = Gemm(inp=0, wgt=0, acc=0, wait=1 << Unit.LOAD, signal=1 << Unit.ALU)
    takers = [replace(alu, wait=1 << Unit.LOAD)] * 4
    bad = replace(
        program,
        config=config,
        instructions=(alu, *[load] * 4, last, gemm, *takers, Finish()),
        outputs=(),
    )
    with pytest.raises(VerifyError, match="can not send its token to alu, whose counter holds 3"):
        verify(bad)


def test_program_order_beyond_the_queues_is_a_deadlock(program: Program) -> None:
    """Tokens that would balance with endless queues hang when fetch can not reach the sender."""
    wait = Alu(source=1, src=0, dst=0, wait=1 << Unit.LOAD)
    waits = [wait, *[replace(wait, wait=0)] * CONFIG.queue_depth]
    address = program.inputs[0].address
    load = Load(buffer=3, row=0, dram=address, signal=1 << Unit.ALU)
    bad = replace(program, instructions=(*waits, load, Finish()), outputs=())
    with pytest.raises(VerifyError, match=r"deadlock after fetching 8 of 11 instructions"):
        verify(bad)
    short = waits[: CONFIG.queue_depth]
    verify(replace(bad, instructions=(*short, load, Finish())))


@pytest.mark.parametrize(
    ("kind", "field", "shift"),
    [
        (Load, "row", 1),
        (Gemm, "inp", 3),
        (Gemm, "wgt", 40),
        (Gemm, "acc", 100),
        (Alu, "src", 100),
        (Alu, "dst", 200),
        (Store, "row", 1),
        (Store, "dram", 1 << 14),
    ],
)
def test_shifted_rows_are_caught(program: Program, kind, field: str, shift: int) -> None:
    """A shift makes something read what nothing wrote, race, or leave an output unwritten."""
    caught = 0
    indices = [i for i, x in enumerate(program.instructions) if isinstance(x, kind)]
    for index in indices:
        value = getattr(program.instructions[index], field) + shift
        try:
            verify(mutate(program, index, **{field: value}))
        except VerifyError:
            caught += 1
    assert caught >= len(indices) // 3 and caught > 0


def test_rows_beyond_the_scratchpad(program: Program) -> None:
    index = find(program, Alu)
    with pytest.raises(VerifyError, match=r"\(ALU\) writes out row 1\d\d\d, out has 1024 rows; "):
        verify(mutate(program, index, dst=1020))


def test_addresses_beyond_memory(program: Program) -> None:
    index = find(program, Store)
    with pytest.raises(VerifyError, match=r"\(STORE\) reaches address \d+, the program's memory"):
        verify(mutate(program, index, dram=program.memory_bytes - 8))


def test_shrunken_memory(program: Program) -> None:
    with pytest.raises(VerifyError, match="the instruction list ends at"):
        verify(replace(program, memory_bytes=program.memory_bytes - 128))


def test_unaligned_addresses(program: Program) -> None:
    index = find(program, Load)
    dram = program.instructions[index].dram + 4  # type: ignore[attr-defined]
    with pytest.raises(VerifyError, match="dram .* is not a multiple of the bus width, 8 bytes"):
        verify(mutate(program, index, dram=dram))


def test_a_store_over_constants(program: Program) -> None:
    index = find(program, Store)
    address = program.constants[0][0]
    with pytest.raises(VerifyError, match="overwrites the constants or instructions"):
        verify(mutate(program, index, dram=address))


def test_an_output_that_is_not_stored_whole(program: Program) -> None:
    stores = [i for i, x in enumerate(program.instructions) if isinstance(x, Store)]
    index = stores[-1]
    short = program.instructions[index].n0 - 1  # type: ignore[attr-defined]
    with pytest.raises(VerifyError, match="output conv1 is never stored at byte"):
        verify(mutate(program, index, n0=short))


def test_swapped_instructions(program: Program) -> None:
    instructions = list(program.instructions)
    gemm = find(program, Gemm)
    load = max(i for i in range(gemm) if isinstance(instructions[i], Load))
    instructions[gemm], instructions[load] = instructions[load], instructions[gemm]
    loads = [i for i, x in enumerate(instructions) if isinstance(x, Load)]
    a, b = loads[0], loads[-1]
    instructions[a], instructions[b] = instructions[b], instructions[a]
    with pytest.raises(VerifyError):
        verify(replace(program, instructions=tuple(instructions)))


@pytest.mark.parametrize("change", ["missing", "twice", "early"])
def test_finish_is_last_and_once(program: Program, change: str) -> None:
    body = program.instructions[:-1]
    instructions = {
        "missing": body,
        "twice": (*body, Finish(), Finish()),
        "early": (Finish(), *body),
    }[change]
    with pytest.raises(VerifyError, match="FINISH must be the last instruction and the only one"):
        verify(replace(program, instructions=instructions))


def test_fields_beyond_their_bits(program: Program) -> None:
    with pytest.raises(VerifyError, match=r"n_k1 must be 0 to 255 \(8 bits\), not 256"):
        verify(mutate(program, find(program, Gemm), n_k1=256))


def test_a_unit_can_not_wait_for_itself(program: Program) -> None:
    with pytest.raises(VerifyError, match="a unit can not exchange tokens with itself"):
        verify(mutate(program, find(program, Gemm), wait=1 << Unit.GEMM))


@pytest.mark.parametrize(
    ("kind", "where", "changes", "message"),
    [
        (Load, {"buffer": 1}, {"pad_top": 1}, "wgt can not be padded; only inp and vin can"),
        (Load, {}, {"buffer": 6}, "buffer 6 is no scratchpad"),
        (Gemm, {"window": 1}, {"first": 9}, "a window of .* rows exceeds block_in 8"),
        (Gemm, {"window": 1}, {"step": 0}, "window mode needs first, n_t and step of at least 1"),
        (Alu, {"source": 0}, {"scale": 0}, "source acc needs scale and no window"),
        (Alu, {}, {"n_ky": 0, "source": 1}, "the maximum's window needs at least one row"),
    ],
)
def test_illegal_combinations(program: Program, kind, where, changes, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        verify(mutate(program, find(program, kind, **where), **changes))


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        ("window", "window mode in a configuration without it"),
        ("add", "add stage in a configuration without it"),
        ("lut", "look-up in a configuration without a table"),
    ],
)
def test_features_the_configuration_lacks(program: Program, feature: str, message: str) -> None:
    config = replace(CONFIG, **{feature: False})
    with pytest.raises(VerifyError, match=message):
        verify(replace(program, config=config))


def test_constants_must_not_overlap(program: Program) -> None:
    address, data = program.constants[0]
    bad = replace(program, constants=(*program.constants, (address + 8, data[:8])))
    with pytest.raises(VerifyError, match="a constant at .* overlaps"):
        verify(bad)


@pytest.mark.parametrize("config", PRESETS.values(), ids=lambda c: c.name)
def test_random_single_faults_in_tokens_are_all_caught(config: AccelConfig) -> None:
    """Flip one mask bit anywhere: tokens no longer balance, whatever the program."""
    flip: Callable[[int, int], int] = lambda mask, unit: mask ^ 1 << unit  # noqa: E731
    for seed in range(5):
        print(f"seed {seed}")
        rng = np.random.default_rng(seed)
        program = lower(random_graph(seed, config), config).program
        for _ in range(10):
            index = int(rng.integers(len(program.instructions) - 1))
            instruction = program.instructions[index]
            other = int(rng.choice([u for u in Unit if u is not instruction.unit]))
            field = str(rng.choice(["wait", "signal"]))
            bad = mutate(program, index, **{field: flip(getattr(instruction, field), other)})
            with pytest.raises(VerifyError):
                verify(bad)
