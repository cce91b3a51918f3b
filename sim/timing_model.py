"""Predicts when each instruction starts and retires, one event per instruction and stage.

The model follows the hardware's structure: fetch fills queues, four units start instructions when
their tokens are there, and everything that moves shares one memory. Inside a unit an instruction is
one interval whose length follows from its fields (``timing_costs``); latencies of the hardware's
pipelines are the named constants below.
"""

import heapq

import numpy as np

from accelc.isa.config import INSTRUCTION_BYTES, AccelConfig
from accelc.isa.registers import ErrorCode
from accelc.isa.spec import FIELDS, INSTRUCTIONS, Opcode, Unit
from accelc.sim.descriptors import OPCODE, SIGNAL, WAIT, Descriptors
from accelc.sim.device import Counters, MemoryModel
from accelc.sim.faults import device_fault
from accelc.sim.timing_bus import BUS_LATENCY, Bus, Segment
from accelc.sim.timing_costs import Costs, costs
from accelc.sim.timing_sequential import predict_sequential
from accelc.sim.tokens import check_tokens

# Fetch: from the host's start to the first address on the bus; from room for a burst to its own;
# from a beat on the bus to the queue.
FETCH_FIRST_ADDRESS, FETCH_ADDRESS = 9, 2
FETCH_PASS = 5
#: Instructions the prefetch buffer holds, and the most one burst brings.
PREFETCH, FETCH_BURST = 8, 4
#: From the last beat in the queue to the instruction at its output; between two outputs, beside
#: the beats that hold fields.
QUEUE_LATENCY, QUEUE_GAP = 3, 3
#: From retiring to the token's receiver starting.
TOKEN = 1
#: From dispatch to the first address; from the last beat to retiring; instructions in flight.
LOAD_ADDRESS, LOAD_RETIRE, LOAD_IN_FLIGHT = 8, 2, 8
#: From dispatch to the first beat; from the last response to retiring; instructions in flight.
STORE_DATA, STORE_RETIRE, STORE_IN_FLIGHT = 9, 1, 5
#: From dispatch to the first weight row read; to the first row issued; between the rows of two
#: instructions; from taking a tile to the next one's first row.
GEMM_WEIGHTS, GEMM_ROWS, GEMM_GAP, GEMM_SWAP = 5, 8, 4, 0
#: From issue to retiring, beside the array's latency; from the last tile begun to the next
#: instruction's dispatch.
GEMM_RETIRE, GEMM_ACCEPT = 5, 1
#: From dispatch to the first row; between two instructions' rows; from retiring to the first row of
#: the next but one; from the next instruction's dispatch to the first row of this one.
ALU_ROWS, ALU_GAP, ALU_BANK, ALU_HOLD = 8, 3, 9, 5
#: From the last row to retiring; what the optional stages add.
ALU_RETIRE, ALU_ADD, ALU_LUT = 11, 11, 3
#: From the last thing retired to done.
FINISH = 1

_UNIT_OF = {int(opcode): cls.unit for opcode, cls in INSTRUCTIONS.items()}
_PASS, _DISPATCH, _TOKENS, _READ_DUE, _READ_END, _WRITE_DUE, _WRITE_END, _RETIRE = range(8)
_BUS_EVENTS = {
    "read_due": _READ_DUE,
    "read_end": _READ_END,
    "write_due": _WRITE_DUE,
    "write_end": _WRITE_END,
}


def array_latency(config: AccelConfig) -> int:
    """Cycles from a row at the array to its sums: operand, multiplier, two adder levels each."""
    return 2 + -(-(config.block_in.bit_length() - 1) // 2)


class TimingModel:
    """One prediction; use :func:`predict`."""

    def __init__(self, config: AccelConfig, memory: MemoryModel, d: Descriptors) -> None:
        self.config = config
        self.latency = memory.latency_cycles
        self.costs: Costs = costs(config, d)
        self.count = len(d)
        header = d.table[:, [OPCODE, WAIT, SIGNAL]].tolist()
        self.units = [_UNIT_OF[opcode] for opcode, _, _ in header]
        self.waits = [wait for _, wait, _ in header]
        self.signals = [signal for _, _, signal in header]
        self.beats_per_instruction = INSTRUCTION_BYTES // config.bus_bytes
        self.order: list[list[int]] = [[] for _ in Unit]
        for index, unit in enumerate(self.units):
            if unit is not None:
                self.order[unit].append(index)
        opcodes = [Opcode.LOAD, Opcode.GEMM, Opcode.ALU, Opcode.STORE]
        self.interval = [
            -(-(FIELDS[o][-1].offset + FIELDS[o][-1].bits) // (8 * config.bus_bytes)) + QUEUE_GAP
            for o in opcodes
        ]
        self.events: list[tuple[float, int, int, int]] = []
        self.sequence = 0
        self.tokens = [[0] * len(Unit) for _ in Unit]
        self.head = [0] * len(Unit)
        self.pushed = [0] * len(Unit)
        self.queue_time: list[float] = [0.0] * self.count
        self.output_time = [0.0] * len(Unit)
        #: When the head's last missing token came; None while one is missing.
        self.complete: list[float | None] = [None] * len(Unit)
        #: When the next try to dispatch is due, if that is still to come.
        self.planned = [0.0] * len(Unit)
        self.accept = [0.0] * len(Unit)
        self.in_flight = [0] * len(Unit)
        self.started = np.zeros(self.count, np.int64)
        self.retired = np.zeros(self.count, np.int64)
        self.wait = [0.0] * len(Unit)
        self.stall = 0.0
        self.bus = Bus(memory.bytes_per_cycle / config.bus_bytes, self.latency, self.plan_bus)
        # fetch
        self.burst = min(FETCH_BURST, config.max_burst_beats // self.beats_per_instruction or 1)
        self.asked = 0
        self.passed = 0
        self.arrived: dict[int, float] = {}
        self.last_pass = 0.0
        self.blocked = False
        # matrix and vector unit
        self.rows_end = [0.0] * len(Unit)
        self.last_take = 0.0
        self.issue_free = 0.0
        #: When the vector unit's last but one and last instruction retire.
        self.alu_retired = (0.0, 0.0)
        self.alu_pipeline = ALU_RETIRE + ALU_ADD * config.add + ALU_LUT * config.lut
        # Plain lists: indexing NumPy arrays one by one is slow.
        self.c_beats = self.costs.beats.tolist()
        self.c_bursts = self.costs.bursts.tolist()
        self.c_pads = self.costs.pads.tolist()
        self.c_gaps = self.costs.gaps.tolist()
        self.c_lead = self.costs.lead.tolist()
        self.c_tiles = self.costs.tiles.tolist()
        self.c_rows = self.costs.rows.tolist()
        self.c_hazards = self.costs.hazards.tolist()
        self.c_chunks = self.costs.chunks.tolist()

    def at(self, time: float, kind: int, argument: int) -> None:
        self.sequence += 1
        heapq.heappush(self.events, (time, self.sequence, kind, argument))

    def plan_bus(self, time: float, what: str, version: int) -> None:
        self.at(time, _BUS_EVENTS[what], version)

    def wake(self, now: float, time: float, unit: int) -> None:
        """Try to dispatch at ``time``, unless a try before then is planned anyway."""
        if self.planned[unit] <= now or time < self.planned[unit]:
            self.planned[unit] = time
            self.at(time, _DISPATCH, unit)

    def run(self) -> Counters:
        self.ask(FETCH_FIRST_ADDRESS)
        handlers = (
            self.pass_on,
            self.dispatch,
            self.send_tokens,
            self.read_due,
            self.read_end,
            self.write_due,
            self.write_end,
            self.retire,
        )
        now = 0.0
        while self.events:
            now, _, kind, argument = heapq.heappop(self.events)
            handlers[kind](now, argument)
        stuck = [(self.order[u][self.head[u]], u) for u in Unit if self.pending(u)]
        if stuck or self.passed < self.count:
            index, unit = min(stuck) if stuck else (self.passed, None)
            raise device_fault(ErrorCode.WATCHDOG, unit, index, "waits for a token for ever")
        return self.counters(now + FINISH)

    def pending(self, unit: Unit) -> bool:
        return self.head[unit] < len(self.order[unit])

    # Fetch

    def ask(self, now: float) -> None:
        """Ask for as many bursts as the prefetch buffer has room for."""
        while self.asked < self.count and self.asked - self.passed <= PREFETCH - self.burst:
            size = min(self.burst, self.count - self.asked)
            self.bus.push_fetch(now, self.asked, size, self.beats_per_instruction)
            self.asked += size

    def pass_on(self, now: float, _: int) -> None:
        """Hand instructions to their queues as long as they are here and there is room."""
        per = self.beats_per_instruction
        while self.passed < self.count:
            index = self.passed
            here = self.arrived.get(index)
            if here is None:
                return
            unit = self.units[index]
            if unit is not None and self.pushed[unit] - self.head[unit] > self.config.queue_depth:
                self.blocked = True
                return
            time = max(self.last_pass + per, here + FETCH_PASS)
            if time > now:
                self.at(time, _PASS, 0)
                return
            self.last_pass = now
            self.passed += 1
            if unit is not None:
                # The queue has all it keeps before the last beats, which are reserved, have passed.
                early = per - (self.interval[unit] - QUEUE_GAP)
                self.queue_time[index] = now + max(QUEUE_LATENCY - early, 0)
                self.pushed[unit] += 1
                self.wake(now, self.queue_time[index], unit)
            self.ask(now + FETCH_ADDRESS)

    # Dispatch

    def dispatch(self, now: float, unit: int) -> None:
        """Start the unit's next instruction if it is there, has its tokens and the unit is free."""
        head = self.head[unit]
        if head >= self.pushed[unit]:
            return
        index = self.order[unit][head]
        here = max(self.queue_time[index], self.output_time[unit])
        if here > now:
            self.wake(now, here, unit)
            return
        wait, tokens = self.waits[index], self.tokens[unit]
        if self.complete[unit] is None:
            for other in range(4):
                if wait >> other & 1 and not tokens[other]:
                    return
            self.complete[unit] = now
            self.wait[unit] += now - here
        if unit == Unit.LOAD or unit == Unit.STORE:
            limit = LOAD_IN_FLIGHT if unit == Unit.LOAD else STORE_IN_FLIGHT
            if self.in_flight[unit] >= limit:
                return
        elif self.accept[unit] > now:
            self.wake(now, self.accept[unit], unit)
            return
        for other in range(4):
            tokens[other] -= wait >> other & 1
        self.complete[unit] = None
        self.started[index] = now
        self.head[unit] = head + 1
        self.in_flight[unit] += 1
        self.output_time[unit] = now + self.interval[unit]
        if unit == Unit.LOAD:
            self.start_load(now, index)
        elif unit == Unit.GEMM:
            self.start_gemm(now, index)
        elif unit == Unit.ALU:
            self.start_alu(now, index)
        else:
            self.start_store(now, index)
        if not self.config.lookahead and unit in (Unit.GEMM, Unit.ALU):
            # The queue prepares the next instruction when the unit lets go of this one.
            self.output_time[unit] = self.accept[unit] + self.interval[unit]
        if self.blocked:
            # Room comes beat by beat, and beat by beat the waiting instruction moves up.
            self.blocked = False
            self.last_pass = now + 1
            self.at(now + 1, _PASS, 0)
        if self.pushed[unit] > head + 1:
            self.wake(now, self.output_time[unit], unit)

    def send_tokens(self, now: float, index: int) -> None:
        signal, unit = self.signals[index], self.units[index]
        assert unit is not None
        for other in range(4):
            if signal >> other & 1:
                self.tokens[other][unit] += 1
                self.dispatch(now, other)

    def retire(self, now: float, index: int) -> None:
        unit = self.units[index]
        assert unit is not None
        self.retired[index] = now
        self.in_flight[unit] -= 1
        if self.signals[index]:
            self.at(now + TOKEN, _TOKENS, index)
        if unit == Unit.LOAD or unit == Unit.STORE:
            self.dispatch(now, unit)

    # Units

    def start_load(self, now: float, index: int) -> None:
        bursts = self.c_bursts[index]
        issue = max(now + LOAD_ADDRESS, self.issue_free)
        self.issue_free = issue + bursts
        segment = Segment(
            index,
            self.c_beats[index],
            bursts,
            issue,
            due=issue + self.latency + BUS_LATENCY if bursts else issue,
            pads=self.c_pads[index],
            gaps=self.c_gaps[index],
            lead=self.c_lead[index],
        )
        self.bus.push(self.bus.reads, now, segment)

    def start_gemm(self, now: float, index: int) -> None:
        block = self.config.block_out
        tiles, rows = self.c_tiles[index], self.c_rows[index]
        ready = max(now + GEMM_ROWS, self.rows_end[Unit.GEMM] + GEMM_GAP)
        if not tiles or not rows:
            self.rows_end[Unit.GEMM] = ready
            self.accept[Unit.GEMM] = ready
            self.at(ready + GEMM_RETIRE + array_latency(self.config), _RETIRE, index)
            return
        weights = max(now + GEMM_WEIGHTS, self.last_take + GEMM_SWAP) + block
        begin = max(ready, weights)
        rows += self.c_hazards[index] / tiles
        period = max(rows, block + GEMM_SWAP)
        last = begin + (tiles - 1) * period
        self.stall += begin - ready + (tiles - 1) * (period - rows) + self.c_hazards[index]
        self.last_take = last
        self.rows_end[Unit.GEMM] = last + rows
        # The next instruction is accepted when the last tile's weights are being read.
        reading = last - period if tiles > 1 else weights - block
        self.accept[Unit.GEMM] = max(reading, ready - GEMM_GAP) + GEMM_ACCEPT
        self.at(last + rows + GEMM_RETIRE + array_latency(self.config), _RETIRE, index)

    def start_alu(self, now: float, index: int) -> None:
        begin = max(
            now + ALU_ROWS,
            self.rows_end[Unit.ALU] + ALU_GAP,
            self.alu_retired[0] + ALU_BANK,
        )
        end = begin + self.c_chunks[index]
        self.rows_end[Unit.ALU] = end
        # One more instruction waits inside the unit.
        self.accept[Unit.ALU] = begin - ALU_HOLD
        self.alu_retired = (self.alu_retired[1], end + self.alu_pipeline)
        self.at(end + self.alu_pipeline, _RETIRE, index)

    def start_store(self, now: float, index: int) -> None:
        due = now + STORE_DATA
        segment = Segment(index, self.c_beats[index], self.c_bursts[index], due, due)
        self.bus.push(self.bus.writes, now, segment)

    # Bus

    def read_due(self, now: float, _: int) -> None:
        self.bus.advance(self.bus.reads, now)

    def write_due(self, now: float, _: int) -> None:
        self.bus.advance(self.bus.writes, now)

    def read_end(self, now: float, version: int) -> None:
        segment = self.bus.finish(self.bus.reads, now, version)
        if segment is None:
            return
        if segment.fetch:
            self.arrived[segment.owner] = now
            self.pass_on(now, 0)
        elif segment.last:
            self.at(now + LOAD_RETIRE, _RETIRE, segment.owner)

    def write_end(self, now: float, version: int) -> None:
        segment = self.bus.finish(self.bus.writes, now, version)
        if segment is not None:
            self.at(now + self.latency + STORE_RETIRE, _RETIRE, segment.owner)

    # Results

    def counters(self, cycles: float) -> Counters:
        total = round(cycles)
        self.started[-1] = self.retired[-1] = total
        busy: list[int] = []
        for unit in Unit:
            own = np.array(self.order[unit], np.int64)
            begin, end = self.started[own], np.maximum.accumulate(self.retired[own])
            # Overlapping instructions count once.
            covered = np.concatenate([[0], end[:-1]]) if own.size else end
            busy.append(int(np.maximum(end - np.maximum(begin, covered), 0).sum()))
        bus = self.config.bus_bytes
        loads = np.array(self.order[Unit.LOAD], np.int64)
        stores = np.array(self.order[Unit.STORE], np.int64)
        wait = [round(w) for w in self.wait]
        return Counters(
            cycles=total,
            busy=(busy[0], busy[1], busy[2], busy[3]),
            wait=(wait[0], wait[1], wait[2], wait[3]),
            gemm_issue=int(self.costs.fires.sum()),
            gemm_stall=round(self.stall),
            read_bytes=int(self.costs.beats[loads].sum()) * bus + self.count * INSTRUCTION_BYTES,
            write_bytes=int(self.costs.beats[stores].sum()) * bus,
            started=self.started,
            retired=self.retired,
        )


def predict(config: AccelConfig, d: Descriptors, memory: MemoryModel | None = None) -> Counters:
    """The counters of a run of ``d`` behind ``memory``, without running it.

    Raises:
        DeviceError: WATCHDOG, if an instruction waits for ever.
    """
    if config.sequential:
        check_tokens(d)
        return predict_sequential(config, d, memory or MemoryModel())
    return TimingModel(config, memory or MemoryModel(), d).run()
