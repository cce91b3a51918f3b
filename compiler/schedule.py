"""Order steps and loads into one instruction stream and place their blocks.

Program order is a legal sequential order: whatever it says is correct once tokens keep conflicting
instructions of different units in it. What this file decides is speed: loads are issued ahead of
the steps that need them, as far as scratchpads, queues and stored data allow, across layers too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    last_use: dict[Block, int] = {}
    first_use: dict[Block, int] = {}
    for index, step in enumerate(steps):
        for block in step.blocks:
            first_use.setdefault(block, index)
            last_use[block] = index
    loads = [block for block in first_use if block.loads]
    dying: dict[int, list[Block]] = {}
    for block, index in last_use.items():
        dying.setdefault(index, []).append(block)

    scratchpads = Scratchpads(config)
    stored = _Stored(steps, config)
    tasks: list[Task] = []
    next_load = 0
    ahead: list[int] = []  # first uses of the loads no step has needed yet
    # loads that have to wait for room must not fill their queue: fetch would not get past them
    limit = min(config.queue_depth, config.max_tokens) - 1

    def issue(block: Block) -> None:
        layer = steps[first_use[block]].layer
        for load in block.loads:
            tasks.append(Task(_placed(load, (("row", block),)), layer))

    for index, step in enumerate(steps):
        while next_load < len(loads):
            block = loads[next_load]
            needed = first_use[block] <= index
            if not needed and (len(ahead) + len(block.loads) > limit or not stored.ready(block)):
                break
            if not scratchpads.try_take(block):
                if needed:
                    raise _does_not_fit(block, config)
                break
            issue(block)
            ahead.extend([first_use[block]] * len(block.loads))
            next_load += 1
        for block in step.blocks:
            if not block.loads and first_use[block] == index and not scratchpads.try_take(block):
                raise _does_not_fit(block, config)
        tasks.append(Task(_placed(step.instruction, step.rows), step.layer))
        if step.stores is not None:
            stored.store(step.stores)
        for block in dying.get(index, ()):
            scratchpads.free(block)
        ahead = [use for use in ahead if use > index]
    return tasks


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
