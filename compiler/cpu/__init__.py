"""The CPU back end: native code through llvmlite for all the accelerator does not run."""

from accelc.compiler.cpu.layout import arena_plan
from accelc.compiler.cpu.lower import supports
from accelc.compiler.cpu.module import CpuModule, compile_graph
from accelc.compiler.cpu.target import Target, host_target, target_for

__all__ = [
    "CpuModule",
    "Target",
    "arena_plan",
    "compile_graph",
    "host_target",
    "supports",
    "target_for",
]
