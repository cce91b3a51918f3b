"""The compute engines of the sequential core with all they work on."""

from amaranth.hdl import Elaboratable, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.utils import ceil_log2

from accelc.hw.layouts import ScratchRead, ScratchWrite
from accelc.hw.mac import MacArray
from accelc.hw.scratchpad import InpRead, OutScratchpad, VinRead
from accelc.hw.sequential.addresses import Addresses
from accelc.hw.sequential.alu_engine import AluEngine
from accelc.hw.sequential.array import SequentialArray, ShadowedArray
from accelc.hw.sequential.gemm_engine import GemmEngine
from accelc.hw.sequential.links import AddressPort, ParamRead, WeightRead
from accelc.hw.sequential.ports import ComputePort
from accelc.hw.sequential.scratchpad import AccMemory, LoadedScratchpad
from accelc.isa.config import AccelConfig


class Compute(wiring.Component):
    """Matrix and vector engine, one at a time, on one array, one address generator, one acc.

    Members
    -------
    compute : ``In(ComputePort())``
    inp, wgt, prm, vin : ``In(ScratchWrite(config))``
        LOAD's writes, only while idle.
    out : ``In(ScratchRead(config))``
        STORE's reads, only while idle.
    """

    compute: wiring.PureInterface
    inp: wiring.PureInterface
    wgt: wiring.PureInterface
    prm: wiring.PureInterface
    vin: wiring.PureInterface
    out: wiring.PureInterface

    def __init__(
        self, config: AccelConfig, *, array: MacArray | SequentialArray | None = None
    ) -> None:
        """Build the engines.

        Parameters
        ----------
        config
            ``sequential``.
        array
            The matrix array, if not the portable one: boards bring their own multipliers.
        """
        self.config = config
        if array is None:
            array = SequentialArray(config)
        elif isinstance(array, MacArray):
            array = ShadowedArray(config, array)
        self.array = array
        self.acc = AccMemory(config)
        super().__init__(
            {
                "compute": In(ComputePort()),
                **{name: In(ScratchWrite(config)) for name in ("inp", "wgt", "prm", "vin")},
                "out": In(ScratchRead(config)),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        config, compute = self.config, self.compute
        m.submodules.array = array = self.array
        m.submodules.addresses = addresses = Addresses(
            written_bits=ceil_log2(max(config.acc_rows, config.out_rows))
        )
        m.submodules.gemm = gemm = GemmEngine(config, array)
        m.submodules.alu = alu = AluEngine(config, array)
        m.submodules.inp_scratchpad = inp = LoadedScratchpad(config, read=InpRead(config))
        m.submodules.wgt_scratchpad = wgt = LoadedScratchpad(config, read=WeightRead(array))
        m.submodules.prm_scratchpad = prm = LoadedScratchpad(config, read=ParamRead(config))
        m.submodules.vin_scratchpad = vin = LoadedScratchpad(
            config, read=VinRead(config), vector=True
        )
        m.submodules.acc_scratchpad = acc = self.acc
        m.submodules.out_scratchpad = out = OutScratchpad(config)

        m.d.comb += [
            gemm.start.eq(compute.start_gemm),
            alu.start.eq(compute.start_alu),
            compute.idle.eq(gemm.idle & alu.idle),
            compute.range_error.eq(gemm.range_error | alu.range_error),
            compute.issue.eq(gemm.issue),
        ]
        wiring.connect(m, wiring.flipped(compute.set), addresses.set)
        for engine in (gemm, alu):
            for name, member in AddressPort().members.items():
                if member.flow == In:
                    m.d.comb += getattr(engine.addresses, name).eq(getattr(addresses, name))
        for name, member in AddressPort().members.items():
            if member.flow != In:
                # the engine that stands still asks for nothing
                m.d.comb += getattr(addresses, name).eq(
                    getattr(gemm.addresses, name) | getattr(alu.addresses, name)
                )

        by_alu = Signal()
        with m.If(compute.start_gemm | compute.start_alu):
            m.d.sync += by_alu.eq(compute.start_alu)
        for name in ("row_en", "load_en"):
            m.d.comb += getattr(array, name).eq(
                getattr(gemm.array, name) | getattr(alu.array, name)
            )
        for name in ("row", "window", "load_part", "load_data"):
            m.d.comb += getattr(array, name).eq(
                Mux(by_alu, getattr(alu.array, name), getattr(gemm.array, name))
            )
        m.d.comb += array.mask.eq(gemm.array.mask)
        for engine in (gemm, alu):
            m.d.comb += [
                port.eq(total) for port, total in zip(engine.array.sums, array.sums, strict=True)
            ]

        m.d.comb += [
            acc.read.en.eq(gemm.acc_read.en | alu.acc_read.en),
            acc.read.addr.eq(Mux(by_alu, alu.acc_read.addr, gemm.acc_read.addr)),
            gemm.acc_read.data.eq(acc.read.data),
            alu.acc_read.data.eq(acc.read.data),
        ]
        wiring.connect(m, gemm.inp_read, inp.read)
        wiring.connect(m, gemm.wgt_read, wgt.read)
        wiring.connect(m, gemm.acc_write, acc.write)
        wiring.connect(m, alu.prm_read, prm.read)
        wiring.connect(m, alu.vin_read, vin.read)
        wiring.connect(m, alu.out_write, out.write)
        for scratchpad, port in (
            (inp, self.inp),
            (wgt, self.wgt),
            (prm, self.prm),
            (vin, self.vin),
        ):
            wiring.connect(m, wiring.flipped(port), scratchpad.write)
        wiring.connect(m, wiring.flipped(self.out), out.read)
        return m
