"""The static verifier: proves of a finished program that no timing can make it hang, race or stray.

It takes nothing from the compiler but the program. Tokens are played through the real queues and
counters; as units take instructions in order and a full counter only delays its sender, whether
that play ends does not depend on timing. The tokens then order the instructions (vector clocks),
and every access is held against that order, row by row and bus beat by bus beat.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from accelc.compiler.footprint import Access, Rows, Space, depth, footprint
from accelc.isa.codec import encode
from accelc.isa.config import AccelConfig
from accelc.isa.errors import EncodingError, VerifyError
from accelc.isa.legality import field_faults
from accelc.isa.program import Program
from accelc.isa.spec import Finish, Instruction, Load, Store, Unit

_UNITS = tuple(Unit)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What the verifier saw of a sound program."""

    #: Instructions of each unit.
    instructions: Mapping[Unit, int]
    #: Tokens sent from unit to unit, and the most that lay in a counter during the play.
    tokens: Mapping[tuple[Unit, Unit], int]
    most_tokens: int
    #: Scratchpad rows that are ever written.
    rows_used: Mapping[Space, int]
    memory_bytes: int


def verify(program: Program) -> Report:
    """Check ``program`` and report on it.

    Raises:
        VerifyError: the first fault, with the instruction's number and what to do about it.
    """
    check = _Verifier(program)
    check.form()
    order, clocks, tokens, most = check.play()
    rows_used = check.accesses_in(order, clocks)
    counts = {unit: sum(i.unit is unit for i in program.instructions) for unit in _UNITS}
    return Report(
        instructions=counts,
        tokens=tokens,
        most_tokens=most,
        rows_used=rows_used,
        memory_bytes=program.memory_bytes,
    )


def _span(rows: Rows) -> str:
    low, high = int(rows.min()), int(rows.max())
    return f"row {low}" if low == high else f"rows {low} to {high}"


@dataclass
class _Verifier:
    program: Program
    footprints: list[tuple[Access, ...]] = field(init=False, default_factory=list)

    @property
    def config(self) -> AccelConfig:
        return self.program.config

    def what(self, index: int) -> str:
        """How messages name an instruction."""
        return f"instruction {index} ({self.program.instructions[index].opcode.name})"

    # every instruction by itself

    def form(self) -> None:
        """Fields, legal combinations, rows and addresses in bounds, FINISH once and last."""
        instructions = self.program.instructions
        finishes = [i for i, x in enumerate(instructions) if isinstance(x, Finish)]
        if finishes != [len(instructions) - 1]:
            raise VerifyError(
                f"FINISH must be the last instruction and the only one, found at {finishes} of "
                f"{len(instructions)} instructions; end the program with one FINISH"
            )
        self._check_layout()
        for index, instruction in enumerate(instructions):
            try:
                encode(instruction)
            except EncodingError as error:
                raise VerifyError(f"instruction {index}: {error}; encode it again") from error
            for fault in self._faults(instruction):
                raise VerifyError(f"{self.what(index)}: {fault}")
            accesses = footprint(instruction, self.config)
            for access in accesses:
                self._check_bounds(index, access)
            self.footprints.append(accesses)

    def _faults(self, i: Instruction) -> Iterator[str]:
        yield from field_faults(i, self.config)
        if isinstance(i, Load | Store):
            for name in ("dram", "stride1", "stride2"):
                if getattr(i, name) % self.config.bus_bytes:
                    yield (
                        f"{name} {getattr(i, name)} is not a multiple of the bus width, "
                        f"{self.config.bus_bytes} bytes; align the tensor"
                    )

    def _check_bounds(self, index: int, access: Access) -> None:
        if not access.rows.size:
            return
        last = int(access.rows.max())
        if access.space is Space.MEMORY:
            end = (last + 1) * self.config.bus_bytes
            if end > self.program.memory_bytes:
                raise VerifyError(
                    f"{self.what(index)} reaches address {end}, the program's memory ends at "
                    f"{self.program.memory_bytes}; raise memory_bytes or correct the address"
                )
            return
        rows = depth(access.space, self.config)
        if last >= rows:
            name = access.space.name.lower()
            raise VerifyError(
                f"{self.what(index)} {'writes' if access.write else 'reads'} {name} row {last}, "
                f"{name} has {rows} rows; shrink the tile or raise {name}_rows"
            )

    def _check_layout(self) -> None:
        """Constants, instructions, inputs and outputs lie in memory and apart from each other."""
        program = self.program
        areas = [(address, len(data), "a constant") for address, data in program.constants]
        code = len(program.instructions) * 64
        areas.append((program.instructions_address, code, "the instruction list"))
        areas += [(r.address, r.nbytes, f"input {r.name}") for r in program.inputs]
        fixed = sorted(areas)
        for address, nbytes, name in [
            *fixed,
            *((r.address, r.nbytes, f"output {r.name}") for r in program.outputs),
        ]:
            if address + nbytes > program.memory_bytes:
                raise VerifyError(
                    f"{name} ends at {address + nbytes}, memory at {program.memory_bytes}; "
                    "raise memory_bytes"
                )
        for (address, nbytes, name), (start, _, other) in zip(fixed, fixed[1:], strict=False):
            if address + nbytes > start:
                raise VerifyError(f"{name} at {address} overlaps {other} at {start}; move one")

    # all instructions together

    def play(
        self,
    ) -> tuple[list[int], list[tuple[int, ...]], dict[tuple[Unit, Unit], int], int]:
        """Exchange tokens through queues and counters of the real size.

        Returns a possible order of completion, per instruction how many instructions of each unit
        are complete before it starts, the tokens of each pair, and the fullest counter.
        """
        instructions = self.program.instructions
        queues: list[deque[int]] = [deque() for _ in _UNITS]
        # clocks of the tokens that lie in the counter from unit to unit
        counters: dict[tuple[Unit, Unit], deque[tuple[int, ...]]] = {
            (a, b): deque() for a in _UNITS for b in _UNITS if a is not b
        }
        latest: list[tuple[int, ...]] = [(0,) * len(_UNITS) for _ in _UNITS]
        clocks: list[tuple[int, ...]] = [()] * len(instructions)
        order: list[int] = []
        sent: dict[tuple[Unit, Unit], int] = dict.fromkeys(counters, 0)
        most = 0
        fetched, last = 0, len(instructions) - 1
        progress = True
        while progress:
            progress = False
            while fetched < last:
                unit = instructions[fetched].unit
                assert unit is not None  # only FINISH has none, and it is last
                if len(queues[unit]) >= self.config.queue_depth:
                    break
                queues[unit].append(fetched)
                fetched += 1
                progress = True
            for unit in _UNITS:
                while queues[unit]:
                    index = queues[unit][0]
                    waits = [o for o in _UNITS if instructions[index].wait >> o & 1]
                    signals = [o for o in _UNITS if instructions[index].signal >> o & 1]
                    if any(not counters[o, unit] for o in waits) or any(
                        len(counters[unit, o]) >= self.config.max_tokens for o in signals
                    ):
                        break
                    clock = latest[unit]
                    for other in waits:
                        clock = tuple(map(max, clock, counters[other, unit].popleft()))
                    clocks[index] = clock
                    after = tuple(c + (u is unit) for u, c in zip(_UNITS, clock, strict=True))
                    latest[unit] = after
                    for other in signals:
                        counters[unit, other].append(after)
                        sent[unit, other] += 1
                        most = max(most, len(counters[unit, other]))
                    order.append(queues[unit].popleft())
                    progress = True
        if len(order) < last:
            self._stuck(queues, counters, fetched)
        for (sender, receiver), tokens in counters.items():
            if tokens:
                raise VerifyError(
                    f"{len(tokens)} token(s) from {sender.name.lower()} to "
                    f"{receiver.name.lower()} are never taken and would disturb the next run; "
                    "remove the signal or add the wait"
                )
        return order, clocks, sent, most

    def _stuck(
        self,
        queues: list[deque[int]],
        counters: dict[tuple[Unit, Unit], deque[tuple[int, ...]]],
        fetched: int,
    ) -> None:
        instructions = self.program.instructions
        reasons: list[str] = []
        for unit in _UNITS:
            if not queues[unit]:
                continue
            index = queues[unit][0]
            for other in _UNITS:
                if instructions[index].wait >> other & 1 and not counters[other, unit]:
                    reasons.append(
                        f"{self.what(index)} waits for a token from {other.name.lower()}"
                    )
                elif (
                    instructions[index].signal >> other & 1
                    and len(counters[unit, other]) >= self.config.max_tokens
                ):
                    reasons.append(
                        f"{self.what(index)} can not send its token to {other.name.lower()}, whose "
                        f"counter holds {self.config.max_tokens}"
                    )
        raise VerifyError(
            f"deadlock after fetching {fetched} of {len(instructions)} instructions with queues of "
            f"{self.config.queue_depth}: {'; '.join(reasons)}. Every wait needs its signal, early "
            "enough in program order to be fetched"
        )

    def accesses_in(self, order: list[int], clocks: list[tuple[int, ...]]) -> dict[Space, int]:
        """No race and no read of what nothing wrote; the scratchpad rows ever written."""
        config, program = self.config, self.program
        beats = -(-program.memory_bytes // config.bus_bytes)
        sizes = {s: beats if s is Space.MEMORY else depth(s, config) for s in Space}
        # number within its unit of the last instruction to touch a row; numbers start at 1
        written: dict[Space, NDArray[np.int32]] = {
            s: np.zeros(n, np.int32) for s, n in sizes.items()
        }
        read: dict[tuple[Space, Unit], NDArray[np.int32]] = {
            (s, u): np.zeros(n, np.int32) for s, n in sizes.items() for u in {s.writer, s.reader}
        }
        known = {s: np.zeros(n, np.bool_) for s, n in sizes.items()}
        fixed = np.zeros(beats, np.bool_)
        for address, nbytes in self._fixed():
            fixed[address // config.bus_bytes : -(-(address + nbytes) // config.bus_bytes)] = True
        known[Space.MEMORY] |= fixed
        for region in program.inputs:
            start = region.address // config.bus_bytes
            known[Space.MEMORY][
                start : -(-(region.address + region.nbytes) // config.bus_bytes)
            ] = True
        numbers = dict.fromkeys(_UNITS, 0)
        for index in order:
            unit = program.instructions[index].unit
            assert unit is not None
            numbers[unit] += 1
            clock = clocks[index]
            for access in self.footprints[index]:
                space, rows = access.space, access.rows
                if not rows.size:
                    continue
                if access.write:
                    if space is Space.MEMORY and fixed[rows].any():
                        self._complain(
                            index,
                            space,
                            rows[fixed[rows]],
                            "overwrites the constants or instructions in",
                        )
                    other = space.reader if unit is space.writer else space.writer
                    self._ordered(
                        index, access, read[space, other][rows], clock[other], other, "reads"
                    )
                elif not known[space][rows].all():
                    self._complain(
                        index, space, rows[~known[space][rows]], "reads what nothing wrote,"
                    )
                writer = space.writer
                if unit is not writer:
                    self._ordered(
                        index, access, written[space][rows], clock[writer], writer, "writes"
                    )
            for access in self.footprints[index]:
                if access.write:
                    written[access.space][access.rows] = numbers[unit]
                    known[access.space][access.rows] = True
                else:
                    read[access.space, unit][access.rows] = numbers[unit]
        for region in program.outputs:
            start = region.address // config.bus_bytes
            stop = -(-(region.address + region.nbytes) // config.bus_bytes)
            if not known[Space.MEMORY][start:stop].all():
                missing = (
                    int(np.flatnonzero(~known[Space.MEMORY][start:stop])[0]) * config.bus_bytes
                )
                raise VerifyError(
                    f"output {region.name} is never stored at byte {missing} of {region.nbytes}; "
                    "store the whole output"
                )
        return {s: int(known[s].sum()) for s in Space if s is not Space.MEMORY}

    def _fixed(self) -> Iterator[tuple[int, int]]:
        """Address and size of memory that no instruction may write."""
        for address, data in self.program.constants:
            yield address, len(data)
        yield self.program.instructions_address, 64 * len(self.program.instructions)

    def _complain(self, index: int, space: Space, rows: Rows, what: str) -> None:
        name = space.name.lower()
        where = _span(rows)
        if space is Space.MEMORY:
            first = int(rows.min()) * self.config.bus_bytes
            where = f"from address {first}"
        raise VerifyError(
            f"{self.what(index)} {what} {name} {where}; "
            "load or store it before and wait for that, or correct the rows"
        )

    def _ordered(
        self,
        index: int,
        access: Access,
        last: NDArray[np.int32],
        known: int,
        other: Unit,
        verb: str,
    ) -> None:
        """Fault if instruction ``last`` of ``other`` may still run when ``index`` starts."""
        if int(last.max()) <= known:
            return
        late = last > known
        number = int(last[late].min())
        position = [i for i, x in enumerate(self.program.instructions) if x.unit is other][
            number - 1
        ]
        name = access.space.name.lower()
        where = _span(access.rows[late])
        if access.space is Space.MEMORY:
            where = f"from address {int(access.rows[late].min()) * self.config.bus_bytes}"
        raise VerifyError(
            f"{self.what(index)} {'writes' if access.write else 'reads'} {name} {where} while "
            f"{self.what(position)} still {verb} it; let {self.what(position)} signal "
            f"{self.program.instructions[index].opcode.name}'s unit and that one wait"
        )
