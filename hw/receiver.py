"""The receiving end of LOAD: beats and padding become scratchpad rows."""

import enum

from amaranth.hdl import Array, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from accelc.hw.arbiter import read_beat_layout
from accelc.hw.layouts import ScratchWrite, beat_address_bits, row_beats_log2
from accelc.isa.config import AccelConfig
from accelc.isa.spec import Buffer

#: What is written in a row, in the order of the phases.
LENGTHS = ("top", "left", "run", "right", "bottom")


def job_layout(config: AccelConfig) -> data.StructLayout:
    """What the receiving side must know of an instruction; all lengths in beats."""
    length = unsigned(beat_address_bits(config) + 1)
    return data.StructLayout(
        {
            "buffer": unsigned(3),
            "pad_value": unsigned(8),
            "start": length,
            "top": length,
            "left": length,
            "run": length,
            "right": length,
            "bottom": length,
            "n1": unsigned(16),
            "n2": unsigned(16),
            # which lengths are not 0: `planes` that there are planes, `data` that they hold data
            "has_top": unsigned(1),
            "has_left": unsigned(1),
            "has_data": unsigned(1),
            "has_right": unsigned(1),
            "has_bottom": unsigned(1),
            "has_planes": unsigned(1),
            # which lengths are a single beat
            **{f"one_{name}": unsigned(1) for name in LENGTHS},
        }
    )


class _Phase(enum.IntEnum):
    """What the receiver writes next; the padded phases count beats, DATA counts runs as well."""

    TOP = 0
    LEFT = 1
    DATA = 2
    RIGHT = 3
    BOTTOM = 4
    #: Nothing left to write.
    END = 5


class LoadReceiver(wiring.Component):
    """Writes arriving beats and padding to their scratchpad rows.

    Padding is written while waiting for memory, too. No cycle is lost between runs, phases and
    instructions: one beat is written in every cycle in which one is there.

    Members
    -------
    i : In(stream of job_layout)
    r : In(stream of read_beat_layout)
    scratch : Out(ScratchWrite) per buffer
        In the cycle after the beat arrived.
    done : Out(1)
        The oldest instruction's last beat can be read.
    range_error : Out(1)
        A beat lay beyond its scratchpad; it was not written. One cycle.
    busy : Out(1)
    """

    i: stream.Interface
    r: stream.Interface
    scratch: list[wiring.PureInterface]
    done: Signal
    range_error: Signal
    busy: Signal

    def __init__(self, config: AccelConfig) -> None:
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(job_layout(config))),
                "r": In(stream.Signature(read_beat_layout(config))),
                "scratch": Out(ScratchWrite(config)).array(len(Buffer)),
                "done": Out(1),
                "range_error": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        job = Signal(job_layout(config), reset_less=True)
        phase = Signal(_Phase)
        active = Signal()
        addr = Signal(beat_address_bits(config) + 1, reset_less=True)
        left = Signal(beat_address_bits(config) + 1, reset_less=True)
        # `left`, `i1` and `i2` are 1: registers, because the choice of the next phase hangs on them
        end_count = Signal(reset_less=True)
        last_run = Signal(reset_less=True)
        last_plane = Signal(reset_less=True)
        i1 = Signal(16, reset_less=True)
        i2 = Signal(16, reset_less=True)

        write = Signal()
        end_phase = Signal()
        finish = Signal()
        is_data = Signal()
        m.d.comb += [
            is_data.eq(phase == _Phase.DATA),
            self.r.ready.eq(active & is_data),
            write.eq(active & (phase != _Phase.END) & (~is_data | self.r.valid)),
            end_phase.eq(write & end_count & (~is_data | last_run)),
        ]

        # The phase after this one, skipping those of length 0.
        following = Signal(_Phase)
        plane_start = Signal(_Phase)
        plane_end = Signal(_Phase)
        epilogue = Signal(_Phase)
        m.d.comb += [
            plane_start.eq(self._plane_start(job)),
            epilogue.eq(Mux(job.has_bottom, _Phase.BOTTOM, _Phase.END)),
            plane_end.eq(Mux(last_plane, epilogue, plane_start)),
        ]
        with m.Switch(phase):
            with m.Case(_Phase.TOP):
                m.d.comb += following.eq(Mux(job.has_planes, plane_start, epilogue))
            with m.Case(_Phase.LEFT):
                right = Mux(job.has_right, _Phase.RIGHT, plane_end)
                m.d.comb += following.eq(Mux(job.has_data, _Phase.DATA, right))
            with m.Case(_Phase.DATA):
                m.d.comb += following.eq(Mux(job.has_right, _Phase.RIGHT, plane_end))
            with m.Case(_Phase.RIGHT):
                m.d.comb += following.eq(plane_end)
            with m.Default():
                m.d.comb += following.eq(_Phase.END)

        plane_over = end_phase & (
            (phase == _Phase.RIGHT)
            | (is_data & ~job.has_right)
            | ((phase == _Phase.LEFT) & ~job.has_data & ~job.has_right)
        )
        m.d.comb += [
            finish.eq(active & Mux(end_phase, following == _Phase.END, phase == _Phase.END)),
            self.i.ready.eq(~active | finish),
            self.busy.eq(active),
        ]
        with m.If(write):
            m.d.sync += [addr.eq(addr + 1), left.eq(left - 1), end_count.eq(left == 2)]
            with m.If(is_data & end_count):
                m.d.sync += [left.eq(job.run), end_count.eq(job.one_run)]
                m.d.sync += [i1.eq(i1 - 1), last_run.eq(i1 == 2)]
        with m.If(plane_over):
            m.d.sync += [i2.eq(i2 - 1), last_plane.eq(i2 == 2)]
        with m.If(end_phase):
            m.d.sync += [phase.eq(following), i1.eq(job.n1), last_run.eq(job.n1 == 1)]
            m.d.sync += [left.eq(self._length(job, following))]
            m.d.sync += [end_count.eq(self._single(job, following))]
        with m.If(self.i.ready):
            job_in = self.i.payload
            start = Mux(
                job_in.has_planes,
                self._plane_start(job_in),
                Mux(job_in.has_bottom, _Phase.BOTTOM, _Phase.END),
            )
            first = Signal(_Phase)
            m.d.comb += first.eq(Mux(job_in.has_top, _Phase.TOP, start))
            m.d.sync += [
                active.eq(self.i.valid),
                job.eq(job_in),
                phase.eq(first),
                addr.eq(job_in.start),
                left.eq(self._length(job_in, first)),
                end_count.eq(self._single(job_in, first)),
                i1.eq(job_in.n1),
                last_run.eq(job_in.n1 == 1),
                i2.eq(job_in.n2),
                last_plane.eq(job_in.n2 == 1),
            ]

        self._write_port(m, job, addr, write, is_data)
        # The last write leaves the register a cycle after `finish` and is readable another later.
        written = Signal()
        m.d.sync += [written.eq(finish), self.done.eq(written)]
        return m

    @staticmethod
    def _plane_start(job: data.View) -> Value:
        data_or_right = Mux(job.has_data, _Phase.DATA, _Phase.RIGHT)
        return Mux(job.has_left, _Phase.LEFT, data_or_right)

    @staticmethod
    def _length(job: data.View, phase: Value) -> Value:
        return Array(job[name] for name in LENGTHS)[phase]

    @staticmethod
    def _single(job: data.View, phase: Value) -> Value:
        return Array(job[f"one_{name}"] for name in LENGTHS)[phase]

    def _write_port(
        self, m: Module, job: data.View, addr: Signal, write: Signal, is_data: Signal
    ) -> None:
        """Register the beat and check its place."""
        config = self._config
        padding = job.pad_value.replicate(config.bus_bytes)
        beat = Signal(config.bus_bytes * 8, reset_less=True)
        beat_addr = Signal(beat_address_bits(config), reset_less=True)
        beyond = Signal()
        with m.Switch(job.buffer):
            for buffer in Buffer:
                with m.Case(buffer):
                    beats = config.rows(buffer) << row_beats_log2(config, buffer)
                    # depths are powers of two
                    m.d.comb += beyond.eq(addr[exact_log2(beats) :].any())
        m.d.comb += self.range_error.eq(write & beyond)
        with m.If(write):
            m.d.sync += [
                beat.eq(Mux(is_data, self.r.payload.data, padding)),
                beat_addr.eq(addr),
            ]
        for buffer in Buffer:
            port = self.scratch[buffer]
            m.d.sync += port.en.eq(write & ~beyond & (job.buffer == buffer))
            m.d.comb += [port.addr.eq(beat_addr), port.data.eq(beat)]
