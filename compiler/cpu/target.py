"""The processor native code is generated for."""

import functools
import platform
from dataclasses import dataclass

import llvmlite.binding as llvm

from accelc.isa.errors import ConfigError

_initialized = False


def initialize() -> None:
    """Register LLVM's targets, once."""
    global _initialized
    if not _initialized:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        _initialized = True


@dataclass(frozen=True)
class Target:
    """Triple, processor and features as LLVM names them, and the vector width to generate for.

    ``vector_bytes`` is 4 where there is no vector unit: everything is then scalar code.
    """

    triple: str
    cpu: str = ""
    features: str = ""
    vector_bytes: int = 16
    abi: str = ""

    @property
    def is_x86(self) -> bool:
        return self.triple.startswith(("x86_64", "i386", "i686"))

    def has(self, feature: str) -> bool:
        return f"+{feature}" in self.features.split(",")

    def machine(self) -> llvm.TargetMachine:
        initialize()
        try:
            target = llvm.Target.from_triple(self.triple)
        except RuntimeError as error:
            raise ConfigError(
                f"LLVM knows no target {self.triple!r} ({error}); give a triple such as "
                "'aarch64-linux-gnu'"
            ) from error
        return target.create_target_machine(
            cpu=self.cpu,
            features=self.features,
            opt=2,
            reloc="pic",
            codemodel="small",
            abiname=self.abi,
        )


@functools.cache
def host_target() -> Target:
    """The machine this runs on."""
    initialize()
    features = llvm.get_host_cpu_features()
    enabled = sorted(name for name, on in features.items() if on)
    width = 16
    if platform.machine().lower() in ("x86_64", "amd64"):
        width = 64 if features.get("avx512bw") else 32 if features.get("avx2") else 16
    return Target(
        triple=llvm.get_process_triple(),
        cpu=llvm.get_host_cpu_name(),
        features=",".join(f"+{name}" for name in enabled),
        vector_bytes=width,
    )


def target_for(triple: str, cpu: str = "", features: str = "", abi: str = "") -> Target:
    """A target for cross compilation; the vector width follows from the architecture."""
    arch = triple.split("-")[0]
    wide = {"aarch64", "arm64", "x86_64", "powerpc64le", "ppc64le", "s390x", "loongarch64"}
    vectors = arch in wide or "+v" in features.split(",") or "+neon" in features
    width = 16 if vectors else 4
    if arch == "x86_64":
        width = 64 if "+avx512bw" in features else 32 if "+avx2" in features else 16
    return Target(triple=triple, cpu=cpu, features=features, vector_bytes=width, abi=abi)
