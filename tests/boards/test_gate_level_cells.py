"""The models of vendor cells: against what data sheets say, and against what Yosys makes of RTL."""

import ctypes
import subprocess
from pathlib import Path

import pytest

from accelc.boards.board import Family
from accelc.boards.build.tools import YOSYS, find_tool
from accelc.boards.gate_level import cell_models
from accelc.sim.verilator import build_library

pytestmark = pytest.mark.rtl

CYCLES = 20_000
LOCKSTEP = Path(__file__).with_name("lockstep.cpp")


def run(verilog: str, what: str) -> None:
    """Clock the test bench ``accel`` with a few seeds; its output ``wrong`` must stay 0."""
    lib = ctypes.CDLL(str(build_library(verilog, LOCKSTEP, what=what)))
    lib.lockstep.argtypes = [ctypes.c_int64, ctypes.c_int, ctypes.POINTER(ctypes.c_uint64)]
    lib.lockstep.restype = ctypes.c_int64
    for seed in (1, 2):
        which = ctypes.c_uint64()
        cycle = lib.lockstep(CYCLES, seed, ctypes.byref(which))
        assert cycle == -1, f"seed {seed}: {which.value:#x} is wrong in cycle {cycle}"


#: A memory of 16 kbit, written and read in units of 8 or 9, 16 or 18 bits and so on, as a flat row
#: of bits; a port's address is in bits without the ninth ones. Not read where it is written.
_RAM_BENCH = """
module bench #(parameter W = 36, R = 36, BYTE = 9) (input clk, output reg wrong);
    // bits of a unit and its place in the row of bits
    function integer at(input integer width, input [13:0] ad);
        at = BYTE * (ad / 8) + (width < BYTE ? (ad % 8) / width * width : 0);
    endfunction
    function [13:0] aligned(input integer width, input [13:0] ad);
        integer units;
        units = width < BYTE ? width : width / BYTE * 8;
        aligned = ad / units * units;
    endfunction

    // a few lines only, so that what is written is read
    reg [16 * 36 - 1:0] bits = 0;
    reg [35:0] di = 0;
    reg [13:0] wa = 0, ra = 0;
    reg [3:0] be = 0;
    reg we = 0, re = 0, reset = 0;
    reg [35:0] expected = 0;
    wire [13:0] wa_pins = aligned(W, wa) | (W / BYTE >= 2 ? be & ((1 << W / BYTE) - 1) : 0);
    wire [13:0] ra_pins = aligned(R, ra);
    wire [35:0] out;
    dut #(.W(W), .R(R)) dut (clk, we, wa_pins, di, re, reset, ra_pins, out);

    wire [35:0] mask = ~36'b0 >> (36 - R);
    wire [35:0] enabled = W / BYTE < 2 ? ~36'b0
        : {{BYTE{be[3]}}, {BYTE{be[2]}}, {BYTE{be[1]}}, {BYTE{be[0]}}};
    wire [35:0] w_mask = (~36'b0 >> (36 - W)) & enabled;
    wire [13:0] new_wa = $urandom & 'h1df, new_ra = $urandom & 'h1df;
    always @(posedge clk) begin
        wrong <= (out & mask) !== expected;
        if (reset) expected <= 0;
        else if (re) expected <= bits[at(R, ra_pins) +: R];
        if (we) bits[at(W, aligned(W, wa)) +: 36] <=
            (bits[at(W, aligned(W, wa)) +: 36] & ~w_mask) | (di & w_mask);
        di <= {$urandom, $urandom};
        be <= $urandom;
        wa <= new_wa;
        ra <= new_ra;
        we <= $urandom;
        reset <= ($urandom & 31) == 0;
        // what a port reads of the 32 bits that the other one writes is undefined
        re <= $urandom & (new_wa / 32 != new_ra / 32);
    end
    initial wrong = 0;
endmodule
"""


def ram_benches(pairs: list[tuple[int, int]], byte: int) -> str:
    instances = [
        f"bench #({w}, {r}, {byte}) b{k} (clk, wrong[{k}]);" for k, (w, r) in enumerate(pairs)
    ]
    return (
        _RAM_BENCH
        + f"module accel (input clk, output [{len(pairs) - 1}:0] wrong);\n"
        + "\n".join(instances)
        + "\nendmodule\n"
    )


def pins(name: str, signal: str, count: int) -> str:
    return ", ".join(f".{name}{k}({signal}[{k}])" for k in range(count))


#: Port A writes, port B reads. 36 bits go through both ports' data pins.
_DP16KD = f"""
module dut #(parameter W = 36, R = 36) (
    input clk, we, input [13:0] wa, input [35:0] di,
    input re, reset, input [13:0] ra, output [35:0] out
);
    wire [17:0] doa, dob;
    DP16KD #(.DATA_WIDTH_A(W), .DATA_WIDTH_B(R)) ram (
        {pins("DIA", "di", 18)}, {", ".join(f".DIB{k}(di[{k + 18}])" for k in range(18))},
        {pins("ADA", "wa", 14)}, {pins("ADB", "ra", 14)},
        {pins("DOA", "doa", 18)}, {pins("DOB", "dob", 18)},
        .CLKA(clk), .CEA(we), .OCEA(1'b1), .WEA(1'b1), .RSTA(1'b0),
        .CSA0(1'b0), .CSA1(1'b0), .CSA2(1'b0),
        .CLKB(clk), .CEB(re), .OCEB(1'b1), .WEB(1'b0), .RSTB(reset),
        .CSB0(1'b0), .CSB1(1'b0), .CSB2(1'b0)
    );
    assign out = R == 36 ? {{dob, doa}} : dob;
endmodule
"""


def test_ecp5_block_ram_reads_what_was_written_in_any_width() -> None:
    widths = (1, 2, 4, 9, 18, 36)
    pairs = [(w, r) for w in widths for r in widths]
    run(_DP16KD + ram_benches(pairs, 9) + cell_models(Family.ECP5), "DP16KD")


def gowin_ram(cell: str, bits: int) -> str:
    return f"""
module dut #(parameter W = {bits}, R = {bits}) (
    input clk, we, input [13:0] wa, input [35:0] di,
    input re, reset, input [13:0] ra, output [35:0] out
);
    wire [{bits - 1}:0] data;
    {cell} #(.BIT_WIDTH_0(W), .BIT_WIDTH_1(R), .BLK_SEL_0(3'b010), .BLK_SEL_1(3'b101)) ram (
        .CLKA(clk), .CEA(we), .RESETA(1'b0), .ADA(wa), .DI(di[{bits - 1}:0]), .BLKSELA(3'b010),
        .CLKB(clk), .CEB(re), .RESETB(reset), .OCE(1'b1), .ADB(ra), .BLKSELB(3'b101), .DO(data)
    );
    assign out = data;
endmodule
"""


@pytest.mark.parametrize(
    ("cell", "bits", "byte", "widths"),
    [("SDPB", 32, 8, (1, 2, 4, 8, 16, 32)), ("SDPX9B", 36, 9, (9, 18, 36))],
)
def test_gowin_block_ram_reads_what_was_written_in_any_width(
    cell: str, bits: int, byte: int, widths: tuple[int, ...]
) -> None:
    pairs = [(w, r) for w in widths for r in widths]
    run(gowin_ram(cell, bits) + ram_benches(pairs, byte) + cell_models(Family.GOWIN), cell)


#: A product with up to three registers on its way, all with one enable and one reset.
_MULTIPLIER_BENCH = """
module bench #(parameter W = 18, IN = 0, PIPE = 0, OUT = 0) (input clk, output reg wrong);
    reg signed [W - 1:0] a = 0, b = 0;
    reg ce = 1, reset = 1;
    wire [2 * W - 1:0] p;
    dut #(.W(W), .IN(IN), .PIPE(PIPE), .OUT(OUT)) dut (clk, ce, reset, a, b, p);

    reg signed [W - 1:0] a1 = 0, b1 = 0;
    reg signed [2 * W - 1:0] p1 = 0, p2 = 0;
    wire signed [W - 1:0] a_used = IN ? a1 : a, b_used = IN ? b1 : b;
    wire signed [2 * W - 1:0] product = a_used * b_used;
    wire signed [2 * W - 1:0] piped = PIPE ? p1 : product;
    always @(posedge clk) begin
        wrong <= p !== (OUT ? p2 : piped);
        if (reset) {a1, b1, p1, p2} <= 0;
        else if (ce) {a1, b1, p1, p2} <= {a, b, product, piped};
        a <= $urandom;
        b <= $urandom;
        ce <= $urandom;
        reset <= ($urandom & 15) == 0;
    end
    initial wrong = 0;
endmodule
"""


def multiplier_benches(width: int) -> str:
    instances = [
        f"bench #({width}, {k & 1}, {k >> 1 & 1}, {k >> 2}) b{k} (clk, wrong[{k}]);"
        for k in range(8)
    ]
    body = "\n".join(instances)
    return (
        f"{_MULTIPLIER_BENCH}\nmodule accel (input clk, output [7:0] wrong);\n{body}\nendmodule\n"
    )


#: Clock, enable and reset by the second of four pins, as a parameter says.
_MULT18X18D = f"""
module dut #(parameter W = 18, IN = 0, PIPE = 0, OUT = 0) (
    input clk, ce, reset, input [17:0] a, b, output [35:0] p
);
    MULT18X18D #(
        .REG_INPUTA_CLK(IN ? "CLK1" : "NONE"), .REG_INPUTA_CE("CE1"), .REG_INPUTA_RST("RST1"),
        .REG_INPUTB_CLK(IN ? "CLK1" : "NONE"), .REG_INPUTB_CE("CE1"), .REG_INPUTB_RST("RST1"),
        .REG_PIPELINE_CLK(PIPE ? "CLK1" : "NONE"),
        .REG_PIPELINE_CE("CE1"), .REG_PIPELINE_RST("RST1"),
        .REG_OUTPUT_CLK(OUT ? "CLK1" : "NONE"), .REG_OUTPUT_CE("CE1"), .REG_OUTPUT_RST("RST1")
    ) multiplier (
        {pins("A", "a", 18)}, {pins("B", "b", 18)}, {pins("P", "p", 36)},
        .SIGNEDA(1'b1), .SIGNEDB(1'b1), .SOURCEA(1'b0), .SOURCEB(1'b0),
        .CLK0(1'b0), .CLK1(clk), .CLK2(1'b0), .CLK3(1'b0),
        .CE0(1'b0), .CE1(ce), .CE2(1'b1), .CE3(1'b0),
        .RST0(1'b1), .RST1(reset), .RST2(1'b0), .RST3(1'b1)
    );
endmodule
"""


def gowin_multiplier(width: int) -> str:
    return f"""
module dut #(parameter W = {width}, IN = 0, PIPE = 0, OUT = 0) (
    input clk, ce, reset, input [{width - 1}:0] a, b, output [{2 * width - 1}:0] p
);
    MULT{width}X{width} #(.AREG(IN), .BREG(IN), .PIPE_REG(PIPE), .OUT_REG(OUT)) multiplier (
        .A(a), .B(b), .SIA({width}'b0), .SIB({width}'b0), .ASIGN(1'b1), .BSIGN(1'b1),
        .ASEL(1'b0), .BSEL(1'b0), .CE(ce), .CLK(clk), .RESET(reset), .DOUT(p)
    );
endmodule
"""


def test_ecp5_multiplier_has_the_registers_it_is_asked_for() -> None:
    run(_MULT18X18D + multiplier_benches(18) + cell_models(Family.ECP5), "MULT18X18D")


@pytest.mark.parametrize("width", [9, 18])
def test_gowin_multiplier_has_the_registers_it_is_asked_for(width: int) -> None:
    verilog = gowin_multiplier(width) + multiplier_benches(width) + cell_models(Family.GOWIN)
    run(verilog, f"MULT{width}X{width}")


#: What boards are made of, small: RTL that Yosys maps to each kind of cell. Reading where another
#: port writes is defined in RTL, undefined in the chips, and has to be made up for by Yosys.
DESIGNS = {
    "wide_ram": """
        reg [35:0] mem [0:511];
        integer k;
        initial for (k = 0; k < 512; k = k + 1) mem[k] = 36'h123456789 * k;
        reg [35:0] q;
        always @(posedge clk) begin
            if (i[0]) q <= mem[i[5:2]];
            for (k = 0; k < 4; k = k + 1)
                if (i[8 + k]) mem[i[16:13]][9 * k +: 9] <= i[20 + 9 * k +: 9];
        end
        assign o = q;""",
    "narrow_ram": """
        reg [3:0] mem [0:4095];
        integer k;
        initial for (k = 0; k < 4096; k = k + 1) mem[k] = k ^ k / 16;
        reg [3:0] q;
        always @(posedge clk) begin
            if (i[1]) mem[i[16:13]] <= i[24:21];
            if (i[0]) q <= mem[i[5:2]];
        end
        assign o = q;""",
    "one_port_ram": """
        reg [17:0] mem [0:1023];
        integer k;
        initial for (k = 0; k < 1024; k = k + 1) mem[k] = 0;
        reg [17:0] q;
        always @(posedge clk)
            if (i[0]) begin
                if (i[1]) mem[i[5:2]] <= i[40:23];
                else q <= mem[i[5:2]];
            end
        assign o = q;""",
    "two_reads": """
        reg [8:0] mem [0:2047];
        integer k;
        initial for (k = 0; k < 2048; k = k + 1) mem[k] = k;
        reg [8:0] p, q;
        always @(posedge clk) begin
            p <= mem[i[5:2]];
            q <= i[7] ? 9'b0 : mem[i[11:8]];
            if (i[1]) mem[i[16:13]] <= i[40:32];
        end
        assign o = {p, q};""",
    "small_ram": """
        reg [7:0] mem [0:15];
        integer k;
        initial for (k = 0; k < 16; k = k + 1) mem[k] = k;
        always @(posedge clk) if (i[0]) mem[i[4:1]] <= i[12:5];
        assign o = mem[i[16:13]];""",
    "multiplier": """
        wire signed [7:0] a = i[7:0], b = i[15:8];
        wire signed [15:0] p = a * b;
        reg signed [31:0] sum = 0;
        always @(posedge clk) sum <= i[63:60] == 0 ? 0 : sum + p;
        assign o = sum;""",
    "wide_multiplier": """
        wire [17:0] a = i[17:0];
        wire signed [17:0] b = i[35:18], c = i[53:36];
        wire [35:0] p = a * i[35:18];
        wire signed [35:0] q = b * c;
        assign o = p ^ {q, 7'b0};""",
    "logic": """
        reg [40:0] count = 5;
        reg [7:0] state = 8'ha5;
        always @(posedge clk) begin
            if (i[0]) count <= count - i[30:1];
            if (i[31]) state <= state + {i[32], i[35:33]};
            else if (i[36]) state <= 8'h3c;
        end
        assign o = {count < i[60:20], state, count};""",
}
_SYNTHESIS = {
    Family.ICE40: "synth_ice40 -device u -top",
    Family.ECP5: "synth_ecp5 -top",
    Family.GOWIN: "synth_gowin -noiopads -top",
}
#: The designs that must have become the cell, or the test shows nothing.
_CELLS = {
    Family.ICE40: {"SB_RAM40_4K", "SB_LUT4", "SB_CARRY"},
    Family.ECP5: {"DP16KD", "MULT18X18D", "TRELLIS_DPR16X4", "CCU2C", "PFUMX", "L6MUX21"},
    Family.GOWIN: {
        "SDPX9B",
        "DPB",
        "SPX9",
        "MULT9X9",
        "MULT18X18",
        "RAM16SDP4",
        "ALU",
        "MUX2_LUT5",
    },
}


@pytest.mark.parametrize("family", Family)
def test_mapped_netlists_do_what_their_rtl_does(family: Family, tmp_path: Path) -> None:
    rtl = "".join(
        f"module {name}_rtl (input clk, input [63:0] i, output [63:0] o);{body}\nendmodule\n"
        for name, body in DESIGNS.items()
    )
    script = []
    for name in DESIGNS:
        script += [f"read_verilog {name}.v", f"{_SYNTHESIS[family]} {name}_gates", "check -assert"]
        script += [f"write_verilog -noattr {name}_gates.v", "design -reset"]
        body = DESIGNS[name]
        (tmp_path / f"{name}.v").write_text(
            f"module {name}_gates (input clk, input [63:0] i, output [63:0] o);{body}\nendmodule\n"
        )
    yosys = find_tool(YOSYS)
    done = subprocess.run(
        [yosys.command, "-q", "-p", "; ".join(script)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    gates = "".join((tmp_path / f"{name}_gates.v").read_text() for name in DESIGNS)
    missing = {cell for cell in _CELLS[family] if f"  {cell} " not in gates}
    assert not missing, f"Yosys did not use {missing}"
    pairs = "".join(
        f"""
    wire [63:0] {name}_a, {name}_b;
    {name}_rtl {name}_r (clk, i, {name}_a);
    {name}_gates {name}_g (clk, i, {name}_b);
    assign wrong[{k}] = {name}_a !== {name}_b;"""
        for k, name in enumerate(DESIGNS)
    )
    bench = f"""
module accel (input clk, output [{len(DESIGNS) - 1}:0] wrong);
    reg [63:0] i = 0;
    always @(posedge clk) i <= {{$urandom, $urandom}};{pairs}
endmodule
"""
    run(bench + rtl + gates + cell_models(family), f"{family.value} cells")
