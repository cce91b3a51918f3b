"""Small random programs that are valid: every row read was written, every conflict has a token."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from accelc.isa.config import INSTRUCTION_BYTES, AccelConfig
from accelc.isa.errors import AccelcError
from accelc.isa.program import Program, Region
from accelc.isa.semantics import Rows
from accelc.isa.spec import Alu, Buffer, Finish, Gemm, Instruction, Load, Source, Store
from accelc.sim.device import Device
from accelc.sim.effects import Space, depth, effects, synchronise

#: Bytes loads draw from; over 4096, so that bursts meet 4 KiB boundaries.
_SOURCE_BYTES = 20 * 1024
_TARGET_BYTES = 4 * 1024
#: Rows of each scratchpad a program touches, so that instructions meet each other's rows.
_AREA_ROWS = {Space.INP: 64, Space.WGT: 10, Space.ACC: 48, Space.PRM: 6, Space.LUT: 1}


@dataclass
class _Area:
    """The part of a scratchpad the program uses and which of its rows hold something."""

    first: int
    rows: int
    written: set[int] = field(default_factory=set)


class _Generator:
    """Draws instructions one at a time and keeps what each scratchpad holds."""

    def __init__(
        self, config: AccelConfig, rng: np.random.Generator, source_bytes: int = _SOURCE_BYTES
    ) -> None:
        self.config = config
        self.rng = rng
        self.source_bytes = source_bytes
        self.instructions: list[Instruction] = []
        self.areas: dict[Space, _Area] = {}
        for space in Space:
            if space is Space.MEMORY:
                continue
            total = depth(config, space)
            rows = min(total, _AREA_ROWS.get(space, 48))
            places = [0, total - rows, int(rng.integers(total - rows + 1))]
            self.areas[space] = _Area(int(rng.choice(places)), rows)

    def between(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``, both included."""
        return int(self.rng.integers(low, high + 1))

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def nest(self, space: Space, counts: Sequence[int], reach: int) -> tuple[int, list[int]]:
        """First row and strides (two's complement) of a loop nest that stays in the area."""
        area = self.areas[space]
        while True:
            strides = [self.between(-reach, reach) for _ in counts]
            ends = [(n - 1) * s for n, s in zip(counts, strides, strict=True)]
            low, high = sum(min(e, 0) for e in ends), sum(max(e, 0) for e in ends)
            if high - low < area.rows:
                break
            reach = max(reach // 2, 0)
        base = area.first - low + self.between(0, area.rows - 1 - (high - low))
        # The stride of a loop that runs once is never used: any value must do.
        strides = [
            self.between(0, 0xFFFF) if n == 1 and self.chance(0.2) else s & 0xFFFF
            for n, s in zip(counts, strides, strict=True)
        ]
        return base, strides

    def aligned(self, low: int, high: int) -> int:
        bus = self.config.bus_bytes
        return self.between(-(-low // bus), high // bus) * bus

    def load(self, buffer: Buffer | None = None) -> Load | None:
        config = self.config
        chosen = Buffer(self.between(0, 4)) if buffer is None else buffer
        if chosen is Buffer.LUT and not config.lut:
            return None
        space = Space(chosen.name.lower())
        area, nbytes = self.areas[space], config.row_bytes(chosen)
        n0, n1, n2 = self.between(1, 8), self.between(1, 4), self.between(1, 3)
        pads = [0, 0, 0, 0]
        if chosen in (Buffer.INP, Buffer.VIN) and self.chance(0.5):
            pads = [self.between(0, 3) for _ in pads]
            n2 = 0 if self.chance(0.1) else n2
        if chosen is Buffer.LUT:
            n0 = n1 = n2 = 1
        rows = pads[0] + n2 * (pads[2] + n1 * n0 + pads[3]) + pads[1]
        if not 0 < rows <= area.rows:
            return None
        stride1 = self.aligned(0, 2 * n0 * nbytes)
        stride2 = self.aligned(0, 2 * n0 * n1 * nbytes)
        low, high = 0, self.source_bytes
        if chosen not in (Buffer.PRM,) and self.chance(0.2):
            low, high = high, high + _TARGET_BYTES
        if chosen is Buffer.PRM:
            # Parameters come from entries made for them, a whole number of entries apart.
            low, stride1, stride2 = high - self.prm_bytes, n0 * nbytes, n0 * n1 * nbytes
        span = (max(n2, 1) - 1) * stride2 + (n1 - 1) * stride1 + n0 * nbytes
        if span > high - low:
            return None
        dram = self.aligned(low, high - span)
        if chosen is Buffer.PRM:
            dram = low + self.between(0, (high - low - span) // nbytes) * nbytes
        return Load(
            buffer=chosen,
            row=area.first + self.between(0, area.rows - rows),
            dram=dram,
            n0=n0,
            n1=n1,
            n2=n2,
            stride1=stride1,
            stride2=stride2,
            pad_value=self.between(-128, 127),
            pad_top=pads[0],
            pad_bottom=pads[1],
            pad_left=pads[2],
            pad_right=pads[3],
        )

    @property
    def prm_bytes(self) -> int:
        """Bytes at the end of the source region that hold parameter entries."""
        return 24 * self.config.prm_row_bytes

    def gemm(self) -> Gemm | None:
        window = self.config.window and self.chance(0.4)
        n_o, n_k0, n_k1, n_k2 = (self.between(1, 3) if self.chance(0.5) else 1 for _ in range(4))
        n_y, n_x, n_t, first, step = self.between(1, 4), self.between(1, 8), 1, 1, 1
        if window:
            n_t = self.between(1, min(4, self.config.block_in))
            first = self.between(1, min(4, self.config.block_in // n_t))
            step = self.between(1, 3)
            n_x = self.between(max(1, first - 1), first + 5)
        fires = len(range(first - 1, n_x, step)) if window else n_x
        inp, inp_s = self.nest(Space.INP, (n_o, n_k0, n_k1, n_k2, n_y, n_x, n_t), 4)
        wgt, wgt_s = self.nest(Space.WGT, (n_o, n_k0, n_k1, n_k2), 3)
        acc, acc_s = self.nest(Space.ACC, (n_o, n_y, max(fires, 1)), 8)
        return Gemm(
            accumulate=self.between(0, 1),
            window=int(window),
            inp=inp,
            wgt=wgt,
            acc=acc,
            **dict(zip(("n_o", "n_k0", "n_k1", "n_k2"), (n_o, n_k0, n_k1, n_k2), strict=True)),
            n_y=n_y,
            n_x=n_x,
            n_t=n_t,
            first=first,
            step=step,
            **{f"inp_{n}": s for n, s in zip("o k0 k1 k2 y x t".split(), inp_s, strict=True)},
            **{f"wgt_{n}": s for n, s in zip("o k0 k1 k2".split(), wgt_s, strict=True)},
            **{f"acc_{n}": s for n, s in zip("oyx", acc_s, strict=True)},
        )

    def signed(self, bits: int) -> int:
        """A signed value whose magnitude is spread over the whole field."""
        magnitude = self.between(0, (1 << self.between(0, bits - 1)) - 1)
        return magnitude if self.chance(0.5) else -magnitude

    def clamp(self) -> tuple[int, int]:
        if self.chance(0.5):
            return -128, 127
        low, high = sorted((self.between(-128, 127), self.between(-128, 127)))
        return low, high

    def alu(self) -> Alu | None:
        config = self.config
        source = Source(self.between(0, 1))
        counts = (self.between(1, 3), self.between(1, 4), self.between(1, 5))
        taps = (1, 1)
        if source is Source.VIN and self.chance(0.6):
            taps = (self.between(1, 3), self.between(1, 3))
        space = Space.ACC if source is Source.ACC else Space.VIN
        src, src_s = self.nest(space, (*counts, *taps), 5)
        vin, vin_s = self.nest(Space.VIN, counts, 8)
        dst, dst_s = self.nest(Space.OUT, counts, 8)
        prm, prm_s = self.nest(Space.PRM, counts[:1], 2)
        (a_min, a_max), (b_min, b_max) = self.clamp(), self.clamp()
        return Alu(
            source=source,
            scale=1 if source is Source.ACC else self.between(0, 1),
            add=int(config.add and self.chance(0.5)),
            lut=int(config.lut and self.chance(0.3)),
            a_inside=self.between(0, 1),
            a_zero=self.between(-128, 127),
            a_min=a_min,
            a_max=a_max,
            b_zero=self.between(-128, 127),
            b_min=b_min,
            b_max=b_max,
            b_shift=self.between(0, 31),
            m1=self.signed(25),
            m2=self.signed(25),
            offset=self.signed(40),
            src=src,
            vin=vin,
            dst=dst,
            prm=prm,
            n0=counts[0],
            n1=counts[1],
            n2=counts[2],
            n_ky=taps[0],
            n_kx=taps[1],
            prm_0=prm_s[0] & 0xFF if prm_s[0] < 0x8000 else 0,
            **{f"src_{n}": s for n, s in zip("0 1 2 ky kx".split(), src_s, strict=True)},
            **{f"vin_{n}": s for n, s in zip("012", vin_s, strict=True)},
            **{f"dst_{n}": s for n, s in zip("012", dst_s, strict=True)},
        )

    def store(self) -> Store | None:
        area, nbytes = self.areas[Space.OUT], self.config.vec_row_bytes
        n0, n1, n2 = self.between(1, 6), self.between(1, 3), self.between(1, 2)
        rows = n0 * n1 * n2
        if rows > area.rows:
            return None
        stride1, stride2 = self.aligned(0, 2 * n0 * nbytes), self.aligned(0, 2 * n0 * n1 * nbytes)
        span = (n2 - 1) * stride2 + (n1 - 1) * stride1 + n0 * nbytes
        if span > _TARGET_BYTES:
            return None
        return Store(
            row=area.first + self.between(0, area.rows - rows),
            dram=self.aligned(self.source_bytes, self.source_bytes + _TARGET_BYTES - span),
            n0=n0,
            n1=n1,
            n2=n2,
            stride1=stride1,
            stride2=stride2,
        )

    def accept(self, instruction: Instruction | None) -> bool:
        """Append ``instruction`` if every row it reads was written before."""
        if instruction is None:
            return False
        footprint = effects(instruction, self.config)
        for space, rows in footprint.reads.items():
            if space is not Space.MEMORY and not self.areas[space].written.issuperset(
                rows.tolist()
            ):
                return False
        for space, rows in footprint.writes.items():
            if space is not Space.MEMORY:
                if rows.size and int(rows.max()) >= depth(self.config, space):
                    return False
                self.areas[space].written.update(rows.tolist())
        self.instructions.append(instruction)
        return True

    def fill(self) -> None:
        """Load most of every scratchpad the host can fill, a few rows at a time."""
        for buffer in Buffer:
            if buffer is Buffer.LUT and not self.config.lut:
                continue
            area = self.areas[Space(buffer.name.lower())]
            goal = area.rows if self.chance(0.7) else area.rows // 2
            nbytes = self.config.row_bytes(buffer)
            row = 0
            while row < goal:
                count = self.between(1, goal - row)
                low = self.source_bytes - self.prm_bytes if buffer is Buffer.PRM else 0
                free = self.source_bytes - low - count * nbytes
                dram = low + self.between(0, free // nbytes) * nbytes
                self.accept(Load(buffer=buffer, row=area.first + row, dram=dram, n0=count))
                row += count

    def grow(self, count: int) -> None:
        """Append ``count`` random instructions."""
        draws: tuple[Callable[[], Instruction | None], ...] = (
            self.load,
            self.gemm,
            self.alu,
            self.store,
        )
        # Weights make the matrix and vector units meet often; now and then one unit gets a run.
        weights = np.array([0.2, 0.35, 0.3, 0.15])
        while count > 0:
            draw = draws[int(self.rng.choice(4, p=weights))]
            for _ in range(self.between(1, 4) if self.chance(0.2) else 1):
                count -= any(self.accept(draw()) for _ in range(30))
            # A unit whose inputs are not there yet must not stop the others.
            if self.chance(0.02):
                count -= 1


def _source(config: AccelConfig, rng: np.random.Generator, nbytes: int, prm_bytes: int) -> bytes:
    """Noise to load; its end holds parameter entries whose results are not all saturated."""
    entries = prm_bytes // 8
    bits = rng.integers(1, config.mult_bits + 1, entries)
    mult = rng.integers(0, 1 << bits)
    # Around the magnitude of mult times a small accumulator, with the whole range now and then.
    shift = np.clip(bits + rng.integers(-4, 14, entries), 0, 63)
    shift = np.where(rng.random(entries) < 0.1, rng.integers(0, 64, entries), shift)
    bias = np.where(
        rng.random(entries) < 0.9,
        rng.integers(-(1 << 12), 1 << 12, entries),
        rng.integers(-(1 << 31), 1 << 31, entries),
    )
    words = np.stack([bias.astype(np.int32).view(np.uint32), mult | shift << 24], 1)
    return rng.bytes(nbytes - prm_bytes) + words.astype("<u4").tobytes()


def random_program(config: AccelConfig, seed: int, source_bytes: int = _SOURCE_BYTES) -> Program:
    """A valid program of 15 to 60 instructions that uses whatever ``config`` has.

    It loads from ``source_bytes`` of noise; on a slow line fewer than usual take less time.

    All of its memory is initialised and no row is read before it is written, so every device must
    leave the same memory behind.
    """
    rng = np.random.default_rng([seed, config.digest])
    generator = _Generator(config, rng, source_bytes)
    source = _source(config, rng, source_bytes, generator.prm_bytes)
    generator.fill()
    generator.grow(int(rng.integers(8, 32)))
    instructions = synchronise(
        [*generator.instructions, Finish()], config, rng, float(rng.choice([0, 0.1, 0.5]))
    )
    address = source_bytes + _TARGET_BYTES
    return Program(
        config=config,
        instructions=instructions,
        instructions_address=address,
        memory_bytes=address + len(instructions) * INSTRUCTION_BYTES,
        constants=((0, source), (source_bytes, rng.bytes(_TARGET_BYTES))),
        outputs=(Region(name="target", address=source_bytes, nbytes=_TARGET_BYTES),),
    )


def compare(program: Program, devices: Sequence[Device]) -> str | None:
    """Run ``program`` on every device; the first difference in final memory, in words, or None."""
    images: list[np.ndarray] = []
    for device in devices:
        device.load(program)
        try:
            device.run(program)
        except AccelcError as error:
            return f"{device.name} failed: {error}"
        images.append(np.frombuffer(device.read(0, program.memory_bytes), np.uint8))
    for device, image in zip(devices[1:], images[1:], strict=True):
        wrong: Rows = np.nonzero(images[0] != image)[0]
        if wrong.size:
            at = int(wrong[0])
            return (
                f"{devices[0].name} and {device.name} differ in {wrong.size} bytes, first at "
                f"address {at}: {images[0][at]} and {image[at]}"
            )
    return None
