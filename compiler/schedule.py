"""Order steps and loads into one instruction stream and place their blocks.

Program order is a legal sequential order: whatever it says is correct once tokens keep conflicting
instructions of different units in it. What this file decides is speed: loads are issued ahead of
the steps that need them, as far as scratchpads, queues and stored data allow, across layers too.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelc.compiler.footprint import Space, depth
from accelc.compiler.layout import Part
from accelc.compiler.scratch import Scratchpads
from accelc.compiler.task import Block, Step
from accelc.isa.config import AccelConfig
from accelc.isa.errors import DoesNotFitError
from accelc.isa.spec import Instruction


@dataclass(frozen=True)
class Task:
    """A placed instruction, without tokens, and the layer it works for."""

    instruction: Instruction
    layer: int


class _Stored:
    """Which pixels of which activations have been stored, in program order."""

    def __init__(self, steps: Sequence[Step], config: AccelConfig) -> None:
        self._per_block = config.vec_inp_rows
        self._pending: dict[str, NDArray[np.bool_]] = {}
        self._bytes = config.vec_row_bytes
        for step in steps:
            if step.stores is not None:
                view = step.stores.view
                if view.value not in self._pending:
                    pixels = view.groups * view.h * view.w
                    blocks = view.pixel_bytes // self._bytes
                    self._pending[view.value] = np.zeros((pixels, blocks), np.bool_)
                self._box(step.stores)[...] = True

    def _box(self, part: Part) -> NDArray[np.bool_]:
        view = part.view
        pending = self._pending[view.value].reshape(view.groups * view.h, view.w, -1)
        first = view.first_block
        blocks = slice(first + part.blocks[0], first + part.blocks[1])
        return pending[slice(*part.lines), slice(*part.columns), blocks]

    def ready(self, block: Block) -> bool:
        return all(
            part.view.value not in self._pending or not self._box(part).any()
            for part in block.reads
        )

    def store(self, part: Part) -> None:
        self._box(part)[...] = False


def schedule(steps: Sequence[Step], config: AccelConfig) -> list[Task]:
    """Place every block and interleave the loads with ``steps``, whose order stays.

    Raises:
        DoesNotFitError: blocks that one step needs at once exceed a scratchpad.
    """
    return _Scheduler(steps, config).run()


#: Loads looked at for one that can be issued before its turn.
WINDOW_BLOCKS = 64
#: Places in the load queue kept for the load whose turn it is.
RESERVED_LOADS = 2


class _Scheduler:
    """List scheduling of loads between steps.

    Blocks of one scratchpad are placed in the order of their first use, so that what is loaded
    early never takes the room of what is needed before it.
    """

    def __init__(self, steps: Sequence[Step], config: AccelConfig) -> None:
        self.steps, self.config = steps, config
        self.first_use: dict[Block, int] = {}
        last_use: dict[Block, int] = {}
        for index, step in enumerate(steps):
            for block in step.blocks:
                self.first_use.setdefault(block, index)
                last_use[block] = index
        self.dying: dict[int, list[Block]] = {}
        for block, index in last_use.items():
            self.dying.setdefault(index, []).append(block)
        self.pending = deque(block for block in self.first_use if block.loads)
        self.scratchpads = Scratchpads(config)
        self.stored = _Stored(steps, config)
        self.tasks: list[Task] = []
        #: First uses of the loads that no step has needed yet.
        self.ahead: list[int] = []
        # loads that have to wait must not fill their queue: fetch would not get past them
        self.limit = min(config.queue_depth, config.max_tokens) - 1

    def run(self) -> list[Task]:
        for index, step in enumerate(self.steps):
            while self.pending and self.first_use[self.pending[0]] <= index:
                self.place(self.pending[0])
                self.issue(self.pending.popleft())
            self.run_ahead(step.layer)
            for block in step.blocks:
                if not block.loads and self.first_use[block] == index:
                    self.place(block)
            self.tasks.append(Task(_placed(step.instruction, step.rows), step.layer))
            if step.stores is not None:
                self.stored.store(step.stores)
            for block in self.dying.get(index, ()):
                self.scratchpads.free(block)
            self.ahead = [use for use in self.ahead if use > index]
        return self.tasks

    def place(self, block: Block) -> None:
        if not self.scratchpads.try_take(block):
            raise _does_not_fit(block, self.config)

    def issue(self, block: Block) -> None:
        """Append the loads of a placed block."""
        use = self.first_use[block]
        for load in block.loads:
            self.tasks.append(Task(_placed(load, (("row", block),)), self.steps[use].layer))
            self.ahead.append(use)

    def run_ahead(self, layer: int) -> None:
        """Issue loads of later steps: in their turn, or past one that waits for stores or room.

        A table waits for its layer: there is one, and until the layer before is done with it the
        loads behind would wait too.
        """
        waiting: set[Space] = set()
        issued: list[int] = []
        for position, block in enumerate(islice(self.pending, WINDOW_BLOCKS)):
            room = self.limit - len(self.ahead) - (RESERVED_LOADS if waiting else 0)
            if len(block.loads) > room:
                break
            if block.space in waiting:
                continue
            early = self.steps[self.first_use[block]].layer != layer
            if block.space is Space.LUT and early:
                waiting.add(block.space)
                continue
            if self.stored.ready(block) and self.scratchpads.try_take(block):
                self.issue(block)
                issued.append(position)
            else:
                waiting.add(block.space)
        for position in reversed(issued):
            del self.pending[position]


def _placed(instruction: Instruction, rows: Sequence[tuple[str, Block]]) -> Instruction:
    changes: dict[str, Any] = {}
    for name, block in rows:
        if block.row is None:
            raise AssertionError(f"block of {block.space.name} used before it was placed")
        changes[name] = getattr(instruction, name) + block.row
    return replace(instruction, **changes)


def _does_not_fit(block: Block, config: AccelConfig) -> DoesNotFitError:
    name = Space(block.space).name.lower()
    return DoesNotFitError(
        f"a block of {block.rows} rows finds no room in {name}, which has "
        f"{depth(block.space, config)} rows; raise {name}_rows or shrink the tile"
    )
