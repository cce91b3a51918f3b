// The 18 kbit block RAM that ECP5 and Gowin have alike: 512 lines of four 9-bit bytes, two ports.
// DP16KD in ecp5.v and SDPB and its relatives in gowin.v are this one with other pins.
//
// A port of width W (1, 2, 4, 9, 18 or 36) addresses units of W bits from the lowest bit of the
// lowest line up; widths below 9 leave every ninth bit out. `ad` is in units of one bit of eight:
// bits 13:5 are the line, 4:3 the byte, 2:0 the bit. At widths 18 and 36 the low bits enable bytes.
//
// Both ports have the same clock. What a port reads of a line that the other one writes at the same
// time is undefined in the chips; here the written bits read as noise. Of two writes to a line at
// once, port B's is the one that counts.
module accelc_block_ram #(
    parameter WIDTH_A = 36,
    parameter WIDTH_B = 36,
    // What a port reads while it writes: 0 keeps what it read last, 1 the new value, 2 the old.
    parameter WRITE_A = 0,
    parameter WRITE_B = 0,
    // Whether a second register follows.
    parameter REG_A = 0,
    parameter REG_B = 0,
    // Whether resets work without a clock; else, whether they keep a port from writing.
    parameter ASYNC_RESET = 0,
    parameter RESET_BLOCKS_WRITES = 0,
    parameter [18431:0] INIT = 18432'b0
) (
    input clk_a, en_a, oce_a, we_a, reset_a,
    input [13:0] ad_a,
    input [35:0] di_a,
    output [35:0] do_a,
    input clk_b, en_b, oce_b, we_b, reset_b,
    input [13:0] ad_b,
    input [35:0] di_b,
    output [35:0] do_b
);
    /* verilator lint_off MULTIDRIVEN */
    reg [35:0] mem [0:511];
    /* verilator lint_on MULTIDRIVEN */
    integer line;
    initial for (line = 0; line < 512; line = line + 1) mem[line] = INIT[36 * line +: 36];

    // Lowest bit of the line that the port addresses.
    function [5:0] place(input integer width, input [13:0] ad);
        case (width)
            36: place = 0;
            18: place = 18 * ad[4];
            9: place = 9 * ad[4:3];
            4: place = 9 * ad[4:3] + 4 * ad[2];
            2: place = 9 * ad[4:3] + 2 * ad[2:1];
            default: place = 9 * ad[4:3] + ad[2:0];
        endcase
    endfunction

    // Bits of the line that the port writes.
    function [35:0] written(input integer width, input [13:0] ad);
        case (width)
            36: written = {{9{ad[3]}}, {9{ad[2]}}, {9{ad[1]}}, {9{ad[0]}}};
            18: written = {18'b0, {9{ad[1]}}, {9{ad[0]}}} << place(width, ad);
            default: written = ((36'b1 << width) - 36'b1) << place(width, ad);
        endcase
    endfunction

    function [35:0] kept(input integer width);
        kept = width == 36 ? ~36'b0 : (36'b1 << width) - 36'b1;
    endfunction

    wire blocks = ASYNC_RESET == 0 && RESET_BLOCKS_WRITES != 0;
    wire write_a = en_a & we_a & ~(reset_a & blocks);
    wire write_b = en_b & we_b & ~(reset_b & blocks);
    wire at_once_a = ASYNC_RESET != 0 && reset_a;
    wire at_once_b = ASYNC_RESET != 0 && reset_b;
    wire [35:0] mask_a = written(WIDTH_A, ad_a), mask_b = written(WIDTH_B, ad_b);
    wire [35:0] data_a = di_a << place(WIDTH_A, ad_a), data_b = di_b << place(WIDTH_B, ad_b);
    wire [35:0] old_a = mem[ad_a[13:5]], old_b = mem[ad_b[13:5]];
    wire [35:0] new_a = (old_a & ~mask_a) | (data_a & mask_a);
    wire [35:0] new_b = (old_b & ~mask_b) | (data_b & mask_b);
    wire same = ad_a[13:5] == ad_b[13:5];
    wire [35:0] seen_a = write_a && WRITE_A == 1 ? new_a : old_a;
    wire [35:0] seen_b = write_b && WRITE_B == 1 ? new_b : old_b;

    reg [35:0] q_a = 0, q_b = 0, r_a = 0, r_b = 0;
    always @(posedge clk_a)
        if (write_a) mem[ad_a[13:5]] <= new_a;
    always @(posedge clk_a, posedge at_once_a) begin
        if (reset_a) q_a <= 0;
        else if (en_a & ~(write_a && WRITE_A == 0)) begin
            q_a <= (seen_a >> place(WIDTH_A, ad_a)) & kept(WIDTH_A);
            if (write_b & same)
                q_a <= ((seen_a ^ (mask_b & {$urandom, $urandom})) >> place(WIDTH_A, ad_a))
                       & kept(WIDTH_A);
        end
        if (reset_a) r_a <= 0;
        else if (oce_a) r_a <= q_a;
    end
    always @(posedge clk_b)
        if (write_b) mem[ad_b[13:5]] <= new_b;
    always @(posedge clk_b, posedge at_once_b) begin
        if (reset_b) q_b <= 0;
        else if (en_b & ~(write_b && WRITE_B == 0)) begin
            q_b <= (seen_b >> place(WIDTH_B, ad_b)) & kept(WIDTH_B);
            if (write_a & same)
                q_b <= ((seen_b ^ (mask_a & {$urandom, $urandom})) >> place(WIDTH_B, ad_b))
                       & kept(WIDTH_B);
        end
        if (reset_b) r_b <= 0;
        else if (oce_b) r_b <= q_b;
    end
    assign do_a = REG_A != 0 ? r_a : q_a;
    assign do_b = REG_B != 0 ? r_b : q_b;
endmodule
