"""Predicts the cycles of a sequential core: one instruction after the other, each from its fields.

What the microprogram does before and after the hardware works is counted in constants below, as
measured; while mover or engines work it does its accounts, and the longer of the two counts. The
next instruction is fetched while the engines finish the last piece of GEMM or ALU.
"""

from dataclasses import dataclass

import numpy as np

from accelc.hw.sequential.digit_plan import DigitPlan
from accelc.isa.config import INSTRUCTION_BYTES, AccelConfig
from accelc.isa.spec import Buffer, Opcode, Source, Unit
from accelc.sim.descriptors import COLUMNS, OPCODE, SIGNAL, WAIT, Descriptors
from accelc.sim.device import Counters, MemoryModel

# The microprogram, in cycles.
#: From start to the first instruction; from one instruction's end to asking for the next; from its
#: last word to its decoding, by opcode.
START, ASK, FETCHED = 430, 21, 13
DECODE = {Opcode.LOAD: 4, Opcode.GEMM: 6, Opcode.ALU: 8, Opcode.STORE: 10, Opcode.FINISH: 12}
#: Accounts of the instruction before; tokens taken, tokens sent, each of them.
ACCOUNTS, WAITS, SIGNALS, TOKEN = 75, 18, 18, 3
#: From decoding to the first command, to the first start.
LOAD_SETUP, STORE_SETUP, GEMM_SETUP, ALU_SETUP = 150, 127, 130, 90
#: Rows become beats; paddings; a window.
SCALE, PADS, WINDOW = 11, 5, 35
#: A plane of rows: its command, its end, the next one's address; a fill.
PLANE, PLANE_END, PLANE_NEXT, FILL = 12, 12, 15, 12
#: Where the next start of GEMM or ALU is found, and begun.
GEMM_NEXT, GEMM_START, ALU_NEXT, ALU_START = 45, 13, 8, 14
# The hardware.
#: From the mover's command to the first address; cycles of a burst.
MOVE, READ_BURST, WRITE_BURST = 4, 3, 4
#: Beats of an instruction are two words of the register file.
WORD_CYCLES = 2
#: From an engine's start to its first row and from its last row to idle.
GEMM_ENGINE, ALU_ENGINE = 12, 22
#: A tile's weights; a lane's parameters; least cycles of an element.
TILE, LANE, LEAST_ELEMENT = 1, 9, 2


@dataclass
class _Clock:
    """Where the microprogram is, and when the engines will be idle."""

    now: float
    engine: float = 0.0
    #: Accounts and tokens the first wait does.
    due: float = 0.0

    def wait(self, until: float) -> None:
        self.now = max(self.now + self.due, until)
        self.due = 0.0


class SequentialModel:
    """One prediction; use :func:`predict_sequential`."""

    def __init__(self, config: AccelConfig, memory: MemoryModel, d: Descriptors) -> None:
        self.config = config
        self.latency = memory.latency_cycles
        self.beat = max(1.0, config.bus_bytes / memory.bytes_per_cycle)
        self.d = d
        self.burst = min(config.max_burst_beats, 4096 // config.bus_bytes) * config.bus_bytes
        self.element = max(DigitPlan(config).passes, LEAST_ELEMENT)
        self.fires = 0
        self.moved = [0, 0]

    def run(self) -> Counters:
        count = len(self.d)
        started, retired = np.zeros(count, np.int64), np.zeros(count, np.int64)
        busy = [0.0] * len(Unit)
        clock = _Clock(now=START)
        begun, unit = 0.0, None
        units = {Opcode.LOAD: 0, Opcode.GEMM: 1, Opcode.ALU: 2, Opcode.STORE: 3}
        bodies = {
            Opcode.LOAD: self.load,
            Opcode.GEMM: self.gemm,
            Opcode.ALU: self.alu,
            Opcode.STORE: self.store,
        }
        beats = INSTRUCTION_BYTES // self.config.bus_bytes
        for index, row in enumerate(self.d.table.tolist()):
            opcode = Opcode(row[OPCODE])
            fetch = MOVE + self.latency + beats * max(WORD_CYCLES, self.beat)
            clock.wait(max(clock.now + ASK + fetch, clock.engine))
            clock.now += FETCHED
            if unit is not None:
                retired[index - 1] = round(clock.now)
                busy[unit] += clock.now - begun
            begun = clock.now
            clock.now += DECODE[opcode]
            started[index] = round(clock.now)
            if opcode in bodies:
                unit = units[opcode]
                tokens = (row[WAIT] | row[SIGNAL] << 4).bit_count()
                clock.due = ACCOUNTS + TOKEN * tokens
                clock.due += WAITS * bool(row[WAIT]) + SIGNALS * bool(row[SIGNAL])
                names = COLUMNS[opcode]
                bodies[opcode](clock, {name: row[column] for name, column in names.items()})
        total = round(clock.now + ACCOUNTS)
        started[-1] = retired[-1] = total
        cycles = [round(b) for b in busy]
        return Counters(
            cycles=total,
            busy=(cycles[0], cycles[1], cycles[2], cycles[3]),
            gemm_issue=self.fires,
            read_bytes=self.moved[0] + count * INSTRUCTION_BYTES,
            write_bytes=self.moved[1],
            started=started,
            retired=retired,
        )

    def runs(self, i: dict[str, int], nbytes: int, runs: int, first: int) -> int:
        """Bursts of ``runs`` runs of ``nbytes`` from ``first`` on."""
        if i["stride1"] % self.burst == 0 or runs == 1:
            start = first % self.burst
            return runs * -(-(start + nbytes) // self.burst)
        starts = first + np.arange(runs) * i["stride1"]
        return int((-(-(starts + nbytes) // self.burst) - starts // self.burst).sum())

    def load(self, clock: _Clock, i: dict[str, int]) -> None:
        config = self.config
        buffer = Buffer(i["buffer"])
        row_bytes = config.row_bytes(buffer)
        beats = row_bytes // config.bus_bytes
        clock.now += LOAD_SETUP + (SCALE if beats > 1 else 0)
        pads = i["pad_top"] | i["pad_bottom"] | i["pad_left"] | i["pad_right"]
        clock.now += PADS * bool(pads)
        n0, n1, n2 = i["n0"], i["n1"], i["n2"]
        sides = (i["pad_left"] + i["pad_right"]) * beats
        first = (i["pad_top"] + (i["pad_left"] if n2 else i["pad_bottom"])) * beats
        last = (i["pad_bottom"] + i["pad_right"]) * beats
        if not (n0 and n1 and n2) and not pads:
            return
        if n1 == 1 and not sides:
            i = {**i, "stride1": i["stride2"]}
            n1, n2 = n2, min(n2, 1)
        self.fill(clock, first)
        self.moved[0] += n0 * n1 * n2 * row_bytes
        for plane in range(n2):
            if n0 and n1:
                clock.now += PLANE
                bursts = self.runs(i, n0 * row_bytes, n1, i["dram"] + plane * i["stride2"])
                cycles = max(n0 * n1 * beats * self.beat, bursts * READ_BURST)
                clock.wait(clock.now + MOVE + self.latency + cycles)
            clock.now += PLANE_END
            if plane + 1 < n2:
                clock.now += PLANE_NEXT
                self.fill(clock, sides)
        if n2:
            self.fill(clock, last)

    def fill(self, clock: _Clock, beats: int) -> None:
        if beats:
            clock.now += FILL + beats

    def store(self, clock: _Clock, i: dict[str, int]) -> None:
        config = self.config
        clock.now += STORE_SETUP
        n0, n1, n2 = i["n0"], i["n1"], i["n2"]
        if not (n0 and n1 and n2):
            return
        if n1 == 1:
            i = {**i, "stride1": i["stride2"]}
            n1, n2 = n2, 1
        row_bytes = config.vec_row_bytes
        beats = row_bytes // config.bus_bytes
        self.moved[1] += n0 * n1 * n2 * row_bytes
        for plane in range(n2):
            clock.now += PLANE
            bursts = self.runs(i, n0 * row_bytes, n1, i["dram"] + plane * i["stride2"])
            cycles = n0 * n1 * beats * self.beat + bursts * WRITE_BURST
            clock.wait(clock.now + MOVE + cycles + self.latency)
            clock.now += PLANE_END + (PLANE_NEXT if plane + 1 < n2 else 0)

    def gemm(self, clock: _Clock, i: dict[str, int]) -> None:
        clock.now += GEMM_SETUP + WINDOW * i["window"]
        counts = [i[n] for n in ("n_o", "n_k0", "n_k1", "n_k2")]
        if not all((*counts, i["n_y"], i["n_x"])):
            return
        tiles = int(np.prod(counts))
        inner = next((n for n in reversed(counts[1:]) if n > 1), 1)
        rows = i["n_y"] * i["n_x"] * (i["n_t"] if i["window"] else 1)
        columns = len(range(i["first"] - 1, i["n_x"], i["step"])) if i["window"] else i["n_x"]
        self.fires += tiles * i["n_y"] * columns
        engine = GEMM_ENGINE + inner * (rows + TILE)
        for start in range(tiles // inner):
            if start:
                clock.wait(clock.engine)
                clock.now += GEMM_START
            clock.engine = clock.now + engine
            clock.now += GEMM_NEXT

    def alu(self, clock: _Clock, i: dict[str, int]) -> None:
        clock.now += ALU_SETUP
        elements = i["n1"] * i["n2"]
        if not elements * i["n0"]:
            return
        taps = i["n_ky"] * i["n_kx"] if i["source"] == Source.VIN else 1
        lane = LANE + elements * taps * self.element
        engine = ALU_ENGINE + self.config.block_out * lane
        for start in range(i["n0"]):
            if start:
                clock.wait(clock.engine)
                clock.now += ALU_START
            clock.engine = clock.now + engine
            clock.now += ALU_NEXT


def predict_sequential(config: AccelConfig, d: Descriptors, memory: MemoryModel) -> Counters:
    """The counters of a run of ``d`` on a sequential core behind ``memory``."""
    return SequentialModel(config, memory, d).run()
