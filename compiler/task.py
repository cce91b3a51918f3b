"""What lowerings produce: compute steps over blocks of scratchpad rows, not placed or ordered yet.

A lowering describes data flow only: which LOADs fill a block, which steps read and write it. Where
blocks lie, when loads are issued and which tokens are needed follows in ``schedule`` and
``tokens``.
"""

from dataclasses import dataclass, field

from accelc.compiler.footprint import Space
from accelc.compiler.layout import Part
from accelc.isa.spec import Instruction, Load


@dataclass(eq=False)
class Block:
    """A run of scratchpad rows that lives from its first use to its last.

    ``loads`` fill it; their ``row`` is relative to the block. Blocks of ``acc`` and ``out`` have
    none: steps write them. ``reads`` are the parts of activations the loads need, so that they are
    issued after the steps that store those.
    """

    space: Space
    rows: int
    loads: tuple[Load, ...] = ()
    reads: tuple[Part, ...] = ()
    #: First row, once placed.
    row: int | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class Step:
    """One GEMM, ALU or STORE; ``rows`` names its fields that are relative to a block."""

    layer: int
    instruction: Instruction
    rows: tuple[tuple[str, Block], ...]
    #: Blocks that must be there although no field points to them: the look-up table.
    also: tuple[Block, ...] = ()
    #: The part of an activation that a STORE writes.
    stores: Part | None = None

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (*(block for _, block in self.rows), *self.also)
