// Gowin cells that Yosys has no behaviour for: block RAM (Gowin UG285, memory user guide) and
// multipliers (UG287, DSP user guide). What no netlist of ours uses is refused.

// Block RAM behind Gowin's pins. X8 leaves the ninth bit of every byte out.
module accelc_gowin_ram #(
    parameter X8 = 0,
    parameter WIDTH_A = 36, WIDTH_B = 36,
    parameter WRITE_A = 0, WRITE_B = 0,
    parameter REG_A = 0, REG_B = 0,
    parameter [2:0] BLK_SEL_A = 0, BLK_SEL_B = 0,
    parameter RESET_MODE = "SYNC",
    parameter [18431:0] INIT = 0
) (
    input clk_a, ce_a, oce_a, wre_a, reset_a,
    input [2:0] blksel_a,
    input [13:0] ad_a,
    input [35:0] di_a,
    output [35:0] do_a,
    input clk_b, ce_b, oce_b, wre_b, reset_b,
    input [2:0] blksel_b,
    input [13:0] ad_b,
    input [35:0] di_b,
    output [35:0] do_b
);
    // 8, 16 and 32 bits are stored as 9, 18 and 36.
    function [35:0] widened(input [35:0] data);
        widened = X8 == 0 ? data
            : {1'b0, data[31:24], 1'b0, data[23:16], 1'b0, data[15:8], 1'b0, data[7:0]};
    endfunction
    function [35:0] narrowed(input [35:0] data);
        narrowed = X8 != 0 ? {4'b0, data[34:27], data[25:18], data[16:9], data[7:0]} : data;
    endfunction
    function integer stored(input integer width);
        stored = width % 8 == 0 ? width / 8 * 9 : width;
    endfunction

    wire [35:0] q_a, q_b;
    accelc_block_ram #(
        .WIDTH_A(stored(WIDTH_A)), .WIDTH_B(stored(WIDTH_B)),
        .WRITE_A(WRITE_A), .WRITE_B(WRITE_B),
        .REG_A(REG_A), .REG_B(REG_B), .ASYNC_RESET(RESET_MODE == "ASYNC"),
        .INIT(INIT)
    ) ram (
        .clk_a(clk_a), .en_a(ce_a & blksel_a == BLK_SEL_A), .oce_a(oce_a), .we_a(wre_a),
        .reset_a(reset_a), .ad_a(ad_a), .di_a(widened(di_a)), .do_a(q_a),
        .clk_b(clk_b), .en_b(ce_b & blksel_b == BLK_SEL_B), .oce_b(oce_b), .we_b(wre_b),
        .reset_b(reset_b), .ad_b(ad_b), .di_b(widened(di_b)), .do_b(q_b)
    );
    assign do_a = narrowed(q_a), do_b = narrowed(q_b);
endmodule

// Written through port A, read through port B.
module SDPB (
    input CLKA, CEA, CLKB, CEB, OCE, RESETA, RESETB,
    input [13:0] ADA, ADB,
    input [31:0] DI,
    input [2:0] BLKSELA, BLKSELB,
    output [31:0] DO
);
    parameter READ_MODE = 1'b0;
    parameter BIT_WIDTH_0 = 32, BIT_WIDTH_1 = 32;
    parameter BLK_SEL_0 = 3'b000, BLK_SEL_1 = 3'b000;
    parameter RESET_MODE = "SYNC";
    parameter [255:0] INIT_RAM_00 = 0, INIT_RAM_01 = 0, INIT_RAM_02 = 0, INIT_RAM_03 = 0,
    INIT_RAM_04 = 0, INIT_RAM_05 = 0, INIT_RAM_06 = 0, INIT_RAM_07 = 0, INIT_RAM_08 = 0, INIT_RAM_09
    = 0, INIT_RAM_0A = 0, INIT_RAM_0B = 0, INIT_RAM_0C = 0, INIT_RAM_0D = 0, INIT_RAM_0E = 0,
    INIT_RAM_0F = 0, INIT_RAM_10 = 0, INIT_RAM_11 = 0, INIT_RAM_12 = 0, INIT_RAM_13 = 0, INIT_RAM_14
    = 0, INIT_RAM_15 = 0, INIT_RAM_16 = 0, INIT_RAM_17 = 0, INIT_RAM_18 = 0, INIT_RAM_19 = 0,
    INIT_RAM_1A = 0, INIT_RAM_1B = 0, INIT_RAM_1C = 0, INIT_RAM_1D = 0, INIT_RAM_1E = 0, INIT_RAM_1F
    = 0, INIT_RAM_20 = 0, INIT_RAM_21 = 0, INIT_RAM_22 = 0, INIT_RAM_23 = 0, INIT_RAM_24 = 0,
    INIT_RAM_25 = 0, INIT_RAM_26 = 0, INIT_RAM_27 = 0, INIT_RAM_28 = 0, INIT_RAM_29 = 0, INIT_RAM_2A
    = 0, INIT_RAM_2B = 0, INIT_RAM_2C = 0, INIT_RAM_2D = 0, INIT_RAM_2E = 0, INIT_RAM_2F = 0,
    INIT_RAM_30 = 0, INIT_RAM_31 = 0, INIT_RAM_32 = 0, INIT_RAM_33 = 0, INIT_RAM_34 = 0, INIT_RAM_35
    = 0, INIT_RAM_36 = 0, INIT_RAM_37 = 0, INIT_RAM_38 = 0, INIT_RAM_39 = 0, INIT_RAM_3A = 0,
    INIT_RAM_3B = 0, INIT_RAM_3C = 0, INIT_RAM_3D = 0, INIT_RAM_3E = 0, INIT_RAM_3F = 0;

    // Thirty-two bytes, each with a ninth bit.
    function [287:0] bytes(input [255:0] init);
        integer k;
        for (k = 0; k < 32; k = k + 1) bytes[9 * k +: 9] = init[8 * k +: 8];
    endfunction

    wire [35:0] data;
    accelc_gowin_ram #(
        .X8(1),
        .WIDTH_A(BIT_WIDTH_0), .WIDTH_B(BIT_WIDTH_1), .REG_B(READ_MODE),
        .BLK_SEL_A(BLK_SEL_0), .BLK_SEL_B(BLK_SEL_1), .RESET_MODE(RESET_MODE),
        .INIT({
            bytes(INIT_RAM_3F), bytes(INIT_RAM_3E), bytes(INIT_RAM_3D), bytes(INIT_RAM_3C),
            bytes(INIT_RAM_3B), bytes(INIT_RAM_3A), bytes(INIT_RAM_39), bytes(INIT_RAM_38),
            bytes(INIT_RAM_37), bytes(INIT_RAM_36), bytes(INIT_RAM_35), bytes(INIT_RAM_34),
            bytes(INIT_RAM_33), bytes(INIT_RAM_32), bytes(INIT_RAM_31), bytes(INIT_RAM_30),
            bytes(INIT_RAM_2F), bytes(INIT_RAM_2E), bytes(INIT_RAM_2D), bytes(INIT_RAM_2C),
            bytes(INIT_RAM_2B), bytes(INIT_RAM_2A), bytes(INIT_RAM_29), bytes(INIT_RAM_28),
            bytes(INIT_RAM_27), bytes(INIT_RAM_26), bytes(INIT_RAM_25), bytes(INIT_RAM_24),
            bytes(INIT_RAM_23), bytes(INIT_RAM_22), bytes(INIT_RAM_21), bytes(INIT_RAM_20),
            bytes(INIT_RAM_1F), bytes(INIT_RAM_1E), bytes(INIT_RAM_1D), bytes(INIT_RAM_1C),
            bytes(INIT_RAM_1B), bytes(INIT_RAM_1A), bytes(INIT_RAM_19), bytes(INIT_RAM_18),
            bytes(INIT_RAM_17), bytes(INIT_RAM_16), bytes(INIT_RAM_15), bytes(INIT_RAM_14),
            bytes(INIT_RAM_13), bytes(INIT_RAM_12), bytes(INIT_RAM_11), bytes(INIT_RAM_10),
            bytes(INIT_RAM_0F), bytes(INIT_RAM_0E), bytes(INIT_RAM_0D), bytes(INIT_RAM_0C),
            bytes(INIT_RAM_0B), bytes(INIT_RAM_0A), bytes(INIT_RAM_09), bytes(INIT_RAM_08),
            bytes(INIT_RAM_07), bytes(INIT_RAM_06), bytes(INIT_RAM_05), bytes(INIT_RAM_04),
            bytes(INIT_RAM_03), bytes(INIT_RAM_02), bytes(INIT_RAM_01), bytes(INIT_RAM_00)
        })
    ) ram (
        .clk_a(CLKA), .ce_a(CEA), .oce_a(1'b0), .wre_a(1'b1), .reset_a(RESETA),
        .blksel_a(BLKSELA), .ad_a(ADA), .di_a({4'b0, DI}), .do_a(),
        .clk_b(CLKB), .ce_b(CEB), .oce_b(OCE), .wre_b(1'b0), .reset_b(RESETB),
        .blksel_b(BLKSELB), .ad_b(ADB), .di_b(36'b0), .do_b(data)
    );
    assign DO = data[31:0];
endmodule

// Written through port A, read through port B.
module SDPX9B (
    input CLKA, CEA, CLKB, CEB, OCE, RESETA, RESETB,
    input [13:0] ADA, ADB,
    input [35:0] DI,
    input [2:0] BLKSELA, BLKSELB,
    output [35:0] DO
);
    parameter READ_MODE = 1'b0;
    parameter BIT_WIDTH_0 = 36, BIT_WIDTH_1 = 36;
    parameter BLK_SEL_0 = 3'b000, BLK_SEL_1 = 3'b000;
    parameter RESET_MODE = "SYNC";
    parameter [287:0] INIT_RAM_00 = 0, INIT_RAM_01 = 0, INIT_RAM_02 = 0, INIT_RAM_03 = 0,
    INIT_RAM_04 = 0, INIT_RAM_05 = 0, INIT_RAM_06 = 0, INIT_RAM_07 = 0, INIT_RAM_08 = 0, INIT_RAM_09
    = 0, INIT_RAM_0A = 0, INIT_RAM_0B = 0, INIT_RAM_0C = 0, INIT_RAM_0D = 0, INIT_RAM_0E = 0,
    INIT_RAM_0F = 0, INIT_RAM_10 = 0, INIT_RAM_11 = 0, INIT_RAM_12 = 0, INIT_RAM_13 = 0, INIT_RAM_14
    = 0, INIT_RAM_15 = 0, INIT_RAM_16 = 0, INIT_RAM_17 = 0, INIT_RAM_18 = 0, INIT_RAM_19 = 0,
    INIT_RAM_1A = 0, INIT_RAM_1B = 0, INIT_RAM_1C = 0, INIT_RAM_1D = 0, INIT_RAM_1E = 0, INIT_RAM_1F
    = 0, INIT_RAM_20 = 0, INIT_RAM_21 = 0, INIT_RAM_22 = 0, INIT_RAM_23 = 0, INIT_RAM_24 = 0,
    INIT_RAM_25 = 0, INIT_RAM_26 = 0, INIT_RAM_27 = 0, INIT_RAM_28 = 0, INIT_RAM_29 = 0, INIT_RAM_2A
    = 0, INIT_RAM_2B = 0, INIT_RAM_2C = 0, INIT_RAM_2D = 0, INIT_RAM_2E = 0, INIT_RAM_2F = 0,
    INIT_RAM_30 = 0, INIT_RAM_31 = 0, INIT_RAM_32 = 0, INIT_RAM_33 = 0, INIT_RAM_34 = 0, INIT_RAM_35
    = 0, INIT_RAM_36 = 0, INIT_RAM_37 = 0, INIT_RAM_38 = 0, INIT_RAM_39 = 0, INIT_RAM_3A = 0,
    INIT_RAM_3B = 0, INIT_RAM_3C = 0, INIT_RAM_3D = 0, INIT_RAM_3E = 0, INIT_RAM_3F = 0;

    wire [35:0] data;
    accelc_gowin_ram #(
        .X8(0),
        .WIDTH_A(BIT_WIDTH_0), .WIDTH_B(BIT_WIDTH_1), .REG_B(READ_MODE),
        .BLK_SEL_A(BLK_SEL_0), .BLK_SEL_B(BLK_SEL_1), .RESET_MODE(RESET_MODE),
        .INIT({
            INIT_RAM_3F, INIT_RAM_3E, INIT_RAM_3D, INIT_RAM_3C, INIT_RAM_3B, INIT_RAM_3A,
            INIT_RAM_39, INIT_RAM_38, INIT_RAM_37, INIT_RAM_36, INIT_RAM_35, INIT_RAM_34,
            INIT_RAM_33, INIT_RAM_32, INIT_RAM_31, INIT_RAM_30, INIT_RAM_2F, INIT_RAM_2E,
            INIT_RAM_2D, INIT_RAM_2C, INIT_RAM_2B, INIT_RAM_2A, INIT_RAM_29, INIT_RAM_28,
            INIT_RAM_27, INIT_RAM_26, INIT_RAM_25, INIT_RAM_24, INIT_RAM_23, INIT_RAM_22,
            INIT_RAM_21, INIT_RAM_20, INIT_RAM_1F, INIT_RAM_1E, INIT_RAM_1D, INIT_RAM_1C,
            INIT_RAM_1B, INIT_RAM_1A, INIT_RAM_19, INIT_RAM_18, INIT_RAM_17, INIT_RAM_16,
            INIT_RAM_15, INIT_RAM_14, INIT_RAM_13, INIT_RAM_12, INIT_RAM_11, INIT_RAM_10,
            INIT_RAM_0F, INIT_RAM_0E, INIT_RAM_0D, INIT_RAM_0C, INIT_RAM_0B, INIT_RAM_0A,
            INIT_RAM_09, INIT_RAM_08, INIT_RAM_07, INIT_RAM_06, INIT_RAM_05, INIT_RAM_04,
            INIT_RAM_03, INIT_RAM_02, INIT_RAM_01, INIT_RAM_00
        })
    ) ram (
        .clk_a(CLKA), .ce_a(CEA), .oce_a(1'b0), .wre_a(1'b1), .reset_a(RESETA),
        .blksel_a(BLKSELA), .ad_a(ADA), .di_a(DI), .do_a(),
        .clk_b(CLKB), .ce_b(CEB), .oce_b(OCE), .wre_b(1'b0), .reset_b(RESETB),
        .blksel_b(BLKSELB), .ad_b(ADB), .di_b(36'b0), .do_b(data)
    );
    assign DO = data[35:0];
endmodule

// Both ports read and write.
module DPB (
    input CLKA, CEA, CLKB, CEB, OCEA, OCEB, RESETA, RESETB, WREA, WREB,
    input [13:0] ADA, ADB,
    input [15:0] DIA, DIB,
    input [2:0] BLKSELA, BLKSELB,
    output [15:0] DOA, DOB
);
    parameter READ_MODE0 = 1'b0, READ_MODE1 = 1'b0;
    parameter WRITE_MODE0 = 2'b00, WRITE_MODE1 = 2'b00;
    parameter BIT_WIDTH_0 = 16, BIT_WIDTH_1 = 16;
    parameter BLK_SEL_0 = 3'b000, BLK_SEL_1 = 3'b000;
    parameter RESET_MODE = "SYNC";
    parameter [255:0] INIT_RAM_00 = 0, INIT_RAM_01 = 0, INIT_RAM_02 = 0, INIT_RAM_03 = 0,
    INIT_RAM_04 = 0, INIT_RAM_05 = 0, INIT_RAM_06 = 0, INIT_RAM_07 = 0, INIT_RAM_08 = 0, INIT_RAM_09
    = 0, INIT_RAM_0A = 0, INIT_RAM_0B = 0, INIT_RAM_0C = 0, INIT_RAM_0D = 0, INIT_RAM_0E = 0,
    INIT_RAM_0F = 0, INIT_RAM_10 = 0, INIT_RAM_11 = 0, INIT_RAM_12 = 0, INIT_RAM_13 = 0, INIT_RAM_14
    = 0, INIT_RAM_15 = 0, INIT_RAM_16 = 0, INIT_RAM_17 = 0, INIT_RAM_18 = 0, INIT_RAM_19 = 0,
    INIT_RAM_1A = 0, INIT_RAM_1B = 0, INIT_RAM_1C = 0, INIT_RAM_1D = 0, INIT_RAM_1E = 0, INIT_RAM_1F
    = 0, INIT_RAM_20 = 0, INIT_RAM_21 = 0, INIT_RAM_22 = 0, INIT_RAM_23 = 0, INIT_RAM_24 = 0,
    INIT_RAM_25 = 0, INIT_RAM_26 = 0, INIT_RAM_27 = 0, INIT_RAM_28 = 0, INIT_RAM_29 = 0, INIT_RAM_2A
    = 0, INIT_RAM_2B = 0, INIT_RAM_2C = 0, INIT_RAM_2D = 0, INIT_RAM_2E = 0, INIT_RAM_2F = 0,
    INIT_RAM_30 = 0, INIT_RAM_31 = 0, INIT_RAM_32 = 0, INIT_RAM_33 = 0, INIT_RAM_34 = 0, INIT_RAM_35
    = 0, INIT_RAM_36 = 0, INIT_RAM_37 = 0, INIT_RAM_38 = 0, INIT_RAM_39 = 0, INIT_RAM_3A = 0,
    INIT_RAM_3B = 0, INIT_RAM_3C = 0, INIT_RAM_3D = 0, INIT_RAM_3E = 0, INIT_RAM_3F = 0;

    // Thirty-two bytes, each with a ninth bit.
    function [287:0] bytes(input [255:0] init);
        integer k;
        for (k = 0; k < 32; k = k + 1) bytes[9 * k +: 9] = init[8 * k +: 8];
    endfunction

    wire [35:0] data_a, data_b;
    accelc_gowin_ram #(
        .X8(1),
        .WIDTH_A(BIT_WIDTH_0), .WIDTH_B(BIT_WIDTH_1), .REG_A(READ_MODE0), .REG_B(READ_MODE1),
        .WRITE_A(WRITE_MODE0), .WRITE_B(WRITE_MODE1),
        .BLK_SEL_A(BLK_SEL_0), .BLK_SEL_B(BLK_SEL_1), .RESET_MODE(RESET_MODE),
        .INIT({
            bytes(INIT_RAM_3F), bytes(INIT_RAM_3E), bytes(INIT_RAM_3D), bytes(INIT_RAM_3C),
            bytes(INIT_RAM_3B), bytes(INIT_RAM_3A), bytes(INIT_RAM_39), bytes(INIT_RAM_38),
            bytes(INIT_RAM_37), bytes(INIT_RAM_36), bytes(INIT_RAM_35), bytes(INIT_RAM_34),
            bytes(INIT_RAM_33), bytes(INIT_RAM_32), bytes(INIT_RAM_31), bytes(INIT_RAM_30),
            bytes(INIT_RAM_2F), bytes(INIT_RAM_2E), bytes(INIT_RAM_2D), bytes(INIT_RAM_2C),
            bytes(INIT_RAM_2B), bytes(INIT_RAM_2A), bytes(INIT_RAM_29), bytes(INIT_RAM_28),
            bytes(INIT_RAM_27), bytes(INIT_RAM_26), bytes(INIT_RAM_25), bytes(INIT_RAM_24),
            bytes(INIT_RAM_23), bytes(INIT_RAM_22), bytes(INIT_RAM_21), bytes(INIT_RAM_20),
            bytes(INIT_RAM_1F), bytes(INIT_RAM_1E), bytes(INIT_RAM_1D), bytes(INIT_RAM_1C),
            bytes(INIT_RAM_1B), bytes(INIT_RAM_1A), bytes(INIT_RAM_19), bytes(INIT_RAM_18),
            bytes(INIT_RAM_17), bytes(INIT_RAM_16), bytes(INIT_RAM_15), bytes(INIT_RAM_14),
            bytes(INIT_RAM_13), bytes(INIT_RAM_12), bytes(INIT_RAM_11), bytes(INIT_RAM_10),
            bytes(INIT_RAM_0F), bytes(INIT_RAM_0E), bytes(INIT_RAM_0D), bytes(INIT_RAM_0C),
            bytes(INIT_RAM_0B), bytes(INIT_RAM_0A), bytes(INIT_RAM_09), bytes(INIT_RAM_08),
            bytes(INIT_RAM_07), bytes(INIT_RAM_06), bytes(INIT_RAM_05), bytes(INIT_RAM_04),
            bytes(INIT_RAM_03), bytes(INIT_RAM_02), bytes(INIT_RAM_01), bytes(INIT_RAM_00)
        })
    ) ram (
        .clk_a(CLKA), .ce_a(CEA), .oce_a(OCEA), .wre_a(WREA), .reset_a(RESETA),
        .blksel_a(BLKSELA), .ad_a(ADA), .di_a({20'b0, DIA}), .do_a(data_a),
        .clk_b(CLKB), .ce_b(CEB), .oce_b(OCEB), .wre_b(WREB), .reset_b(RESETB),
        .blksel_b(BLKSELB), .ad_b(ADB), .di_b({20'b0, DIB}), .do_b(data_b)
    );
    assign DOA = data_a[15:0], DOB = data_b[15:0];
endmodule

// Both ports read and write.
module DPX9B (
    input CLKA, CEA, CLKB, CEB, OCEA, OCEB, RESETA, RESETB, WREA, WREB,
    input [13:0] ADA, ADB,
    input [17:0] DIA, DIB,
    input [2:0] BLKSELA, BLKSELB,
    output [17:0] DOA, DOB
);
    parameter READ_MODE0 = 1'b0, READ_MODE1 = 1'b0;
    parameter WRITE_MODE0 = 2'b00, WRITE_MODE1 = 2'b00;
    parameter BIT_WIDTH_0 = 18, BIT_WIDTH_1 = 18;
    parameter BLK_SEL_0 = 3'b000, BLK_SEL_1 = 3'b000;
    parameter RESET_MODE = "SYNC";
    parameter [287:0] INIT_RAM_00 = 0, INIT_RAM_01 = 0, INIT_RAM_02 = 0, INIT_RAM_03 = 0,
    INIT_RAM_04 = 0, INIT_RAM_05 = 0, INIT_RAM_06 = 0, INIT_RAM_07 = 0, INIT_RAM_08 = 0, INIT_RAM_09
    = 0, INIT_RAM_0A = 0, INIT_RAM_0B = 0, INIT_RAM_0C = 0, INIT_RAM_0D = 0, INIT_RAM_0E = 0,
    INIT_RAM_0F = 0, INIT_RAM_10 = 0, INIT_RAM_11 = 0, INIT_RAM_12 = 0, INIT_RAM_13 = 0, INIT_RAM_14
    = 0, INIT_RAM_15 = 0, INIT_RAM_16 = 0, INIT_RAM_17 = 0, INIT_RAM_18 = 0, INIT_RAM_19 = 0,
    INIT_RAM_1A = 0, INIT_RAM_1B = 0, INIT_RAM_1C = 0, INIT_RAM_1D = 0, INIT_RAM_1E = 0, INIT_RAM_1F
    = 0, INIT_RAM_20 = 0, INIT_RAM_21 = 0, INIT_RAM_22 = 0, INIT_RAM_23 = 0, INIT_RAM_24 = 0,
    INIT_RAM_25 = 0, INIT_RAM_26 = 0, INIT_RAM_27 = 0, INIT_RAM_28 = 0, INIT_RAM_29 = 0, INIT_RAM_2A
    = 0, INIT_RAM_2B = 0, INIT_RAM_2C = 0, INIT_RAM_2D = 0, INIT_RAM_2E = 0, INIT_RAM_2F = 0,
    INIT_RAM_30 = 0, INIT_RAM_31 = 0, INIT_RAM_32 = 0, INIT_RAM_33 = 0, INIT_RAM_34 = 0, INIT_RAM_35
    = 0, INIT_RAM_36 = 0, INIT_RAM_37 = 0, INIT_RAM_38 = 0, INIT_RAM_39 = 0, INIT_RAM_3A = 0,
    INIT_RAM_3B = 0, INIT_RAM_3C = 0, INIT_RAM_3D = 0, INIT_RAM_3E = 0, INIT_RAM_3F = 0;

    wire [35:0] data_a, data_b;
    accelc_gowin_ram #(
        .X8(0),
        .WIDTH_A(BIT_WIDTH_0), .WIDTH_B(BIT_WIDTH_1), .REG_A(READ_MODE0), .REG_B(READ_MODE1),
        .WRITE_A(WRITE_MODE0), .WRITE_B(WRITE_MODE1),
        .BLK_SEL_A(BLK_SEL_0), .BLK_SEL_B(BLK_SEL_1), .RESET_MODE(RESET_MODE),
        .INIT({
            INIT_RAM_3F, INIT_RAM_3E, INIT_RAM_3D, INIT_RAM_3C, INIT_RAM_3B, INIT_RAM_3A,
            INIT_RAM_39, INIT_RAM_38, INIT_RAM_37, INIT_RAM_36, INIT_RAM_35, INIT_RAM_34,
            INIT_RAM_33, INIT_RAM_32, INIT_RAM_31, INIT_RAM_30, INIT_RAM_2F, INIT_RAM_2E,
            INIT_RAM_2D, INIT_RAM_2C, INIT_RAM_2B, INIT_RAM_2A, INIT_RAM_29, INIT_RAM_28,
            INIT_RAM_27, INIT_RAM_26, INIT_RAM_25, INIT_RAM_24, INIT_RAM_23, INIT_RAM_22,
            INIT_RAM_21, INIT_RAM_20, INIT_RAM_1F, INIT_RAM_1E, INIT_RAM_1D, INIT_RAM_1C,
            INIT_RAM_1B, INIT_RAM_1A, INIT_RAM_19, INIT_RAM_18, INIT_RAM_17, INIT_RAM_16,
            INIT_RAM_15, INIT_RAM_14, INIT_RAM_13, INIT_RAM_12, INIT_RAM_11, INIT_RAM_10,
            INIT_RAM_0F, INIT_RAM_0E, INIT_RAM_0D, INIT_RAM_0C, INIT_RAM_0B, INIT_RAM_0A,
            INIT_RAM_09, INIT_RAM_08, INIT_RAM_07, INIT_RAM_06, INIT_RAM_05, INIT_RAM_04,
            INIT_RAM_03, INIT_RAM_02, INIT_RAM_01, INIT_RAM_00
        })
    ) ram (
        .clk_a(CLKA), .ce_a(CEA), .oce_a(OCEA), .wre_a(WREA), .reset_a(RESETA),
        .blksel_a(BLKSELA), .ad_a(ADA), .di_a({18'b0, DIA}), .do_a(data_a),
        .clk_b(CLKB), .ce_b(CEB), .oce_b(OCEB), .wre_b(WREB), .reset_b(RESETB),
        .blksel_b(BLKSELB), .ad_b(ADB), .di_b({18'b0, DIB}), .do_b(data_b)
    );
    assign DOA = data_a[17:0], DOB = data_b[17:0];
endmodule

// One port.
module SP (
    input CLK, CE, OCE, RESET, WRE,
    input [13:0] AD,
    input [31:0] DI,
    input [2:0] BLKSEL,
    output [31:0] DO
);
    parameter READ_MODE = 1'b0;
    parameter WRITE_MODE = 2'b00;
    parameter BIT_WIDTH = 32;
    parameter BLK_SEL = 3'b000;
    parameter RESET_MODE = "SYNC";
    parameter [255:0] INIT_RAM_00 = 0, INIT_RAM_01 = 0, INIT_RAM_02 = 0, INIT_RAM_03 = 0,
    INIT_RAM_04 = 0, INIT_RAM_05 = 0, INIT_RAM_06 = 0, INIT_RAM_07 = 0, INIT_RAM_08 = 0, INIT_RAM_09
    = 0, INIT_RAM_0A = 0, INIT_RAM_0B = 0, INIT_RAM_0C = 0, INIT_RAM_0D = 0, INIT_RAM_0E = 0,
    INIT_RAM_0F = 0, INIT_RAM_10 = 0, INIT_RAM_11 = 0, INIT_RAM_12 = 0, INIT_RAM_13 = 0, INIT_RAM_14
    = 0, INIT_RAM_15 = 0, INIT_RAM_16 = 0, INIT_RAM_17 = 0, INIT_RAM_18 = 0, INIT_RAM_19 = 0,
    INIT_RAM_1A = 0, INIT_RAM_1B = 0, INIT_RAM_1C = 0, INIT_RAM_1D = 0, INIT_RAM_1E = 0, INIT_RAM_1F
    = 0, INIT_RAM_20 = 0, INIT_RAM_21 = 0, INIT_RAM_22 = 0, INIT_RAM_23 = 0, INIT_RAM_24 = 0,
    INIT_RAM_25 = 0, INIT_RAM_26 = 0, INIT_RAM_27 = 0, INIT_RAM_28 = 0, INIT_RAM_29 = 0, INIT_RAM_2A
    = 0, INIT_RAM_2B = 0, INIT_RAM_2C = 0, INIT_RAM_2D = 0, INIT_RAM_2E = 0, INIT_RAM_2F = 0,
    INIT_RAM_30 = 0, INIT_RAM_31 = 0, INIT_RAM_32 = 0, INIT_RAM_33 = 0, INIT_RAM_34 = 0, INIT_RAM_35
    = 0, INIT_RAM_36 = 0, INIT_RAM_37 = 0, INIT_RAM_38 = 0, INIT_RAM_39 = 0, INIT_RAM_3A = 0,
    INIT_RAM_3B = 0, INIT_RAM_3C = 0, INIT_RAM_3D = 0, INIT_RAM_3E = 0, INIT_RAM_3F = 0;

    // Thirty-two bytes, each with a ninth bit.
    function [287:0] bytes(input [255:0] init);
        integer k;
        for (k = 0; k < 32; k = k + 1) bytes[9 * k +: 9] = init[8 * k +: 8];
    endfunction

    wire [35:0] data;
    accelc_gowin_ram #(
        .X8(1),
        .WIDTH_A(BIT_WIDTH), .REG_A(READ_MODE), .WRITE_A(WRITE_MODE),
        .BLK_SEL_A(BLK_SEL), .RESET_MODE(RESET_MODE),
        .INIT({
            bytes(INIT_RAM_3F), bytes(INIT_RAM_3E), bytes(INIT_RAM_3D), bytes(INIT_RAM_3C),
            bytes(INIT_RAM_3B), bytes(INIT_RAM_3A), bytes(INIT_RAM_39), bytes(INIT_RAM_38),
            bytes(INIT_RAM_37), bytes(INIT_RAM_36), bytes(INIT_RAM_35), bytes(INIT_RAM_34),
            bytes(INIT_RAM_33), bytes(INIT_RAM_32), bytes(INIT_RAM_31), bytes(INIT_RAM_30),
            bytes(INIT_RAM_2F), bytes(INIT_RAM_2E), bytes(INIT_RAM_2D), bytes(INIT_RAM_2C),
            bytes(INIT_RAM_2B), bytes(INIT_RAM_2A), bytes(INIT_RAM_29), bytes(INIT_RAM_28),
            bytes(INIT_RAM_27), bytes(INIT_RAM_26), bytes(INIT_RAM_25), bytes(INIT_RAM_24),
            bytes(INIT_RAM_23), bytes(INIT_RAM_22), bytes(INIT_RAM_21), bytes(INIT_RAM_20),
            bytes(INIT_RAM_1F), bytes(INIT_RAM_1E), bytes(INIT_RAM_1D), bytes(INIT_RAM_1C),
            bytes(INIT_RAM_1B), bytes(INIT_RAM_1A), bytes(INIT_RAM_19), bytes(INIT_RAM_18),
            bytes(INIT_RAM_17), bytes(INIT_RAM_16), bytes(INIT_RAM_15), bytes(INIT_RAM_14),
            bytes(INIT_RAM_13), bytes(INIT_RAM_12), bytes(INIT_RAM_11), bytes(INIT_RAM_10),
            bytes(INIT_RAM_0F), bytes(INIT_RAM_0E), bytes(INIT_RAM_0D), bytes(INIT_RAM_0C),
            bytes(INIT_RAM_0B), bytes(INIT_RAM_0A), bytes(INIT_RAM_09), bytes(INIT_RAM_08),
            bytes(INIT_RAM_07), bytes(INIT_RAM_06), bytes(INIT_RAM_05), bytes(INIT_RAM_04),
            bytes(INIT_RAM_03), bytes(INIT_RAM_02), bytes(INIT_RAM_01), bytes(INIT_RAM_00)
        })
    ) ram (
        .clk_a(CLK), .ce_a(CE), .oce_a(OCE), .wre_a(WRE), .reset_a(RESET),
        .blksel_a(BLKSEL), .ad_a(AD), .di_a({4'b0, DI}), .do_a(data),
        .clk_b(CLK), .ce_b(1'b0), .oce_b(1'b0), .wre_b(1'b0), .reset_b(1'b0),
        .blksel_b(3'b0), .ad_b(14'b0), .di_b(36'b0), .do_b()
    );
    assign DO = data[31:0];
endmodule

// One port.
module SPX9 (
    input CLK, CE, OCE, RESET, WRE,
    input [13:0] AD,
    input [35:0] DI,
    input [2:0] BLKSEL,
    output [35:0] DO
);
    parameter READ_MODE = 1'b0;
    parameter WRITE_MODE = 2'b00;
    parameter BIT_WIDTH = 36;
    parameter BLK_SEL = 3'b000;
    parameter RESET_MODE = "SYNC";
    parameter [287:0] INIT_RAM_00 = 0, INIT_RAM_01 = 0, INIT_RAM_02 = 0, INIT_RAM_03 = 0,
    INIT_RAM_04 = 0, INIT_RAM_05 = 0, INIT_RAM_06 = 0, INIT_RAM_07 = 0, INIT_RAM_08 = 0, INIT_RAM_09
    = 0, INIT_RAM_0A = 0, INIT_RAM_0B = 0, INIT_RAM_0C = 0, INIT_RAM_0D = 0, INIT_RAM_0E = 0,
    INIT_RAM_0F = 0, INIT_RAM_10 = 0, INIT_RAM_11 = 0, INIT_RAM_12 = 0, INIT_RAM_13 = 0, INIT_RAM_14
    = 0, INIT_RAM_15 = 0, INIT_RAM_16 = 0, INIT_RAM_17 = 0, INIT_RAM_18 = 0, INIT_RAM_19 = 0,
    INIT_RAM_1A = 0, INIT_RAM_1B = 0, INIT_RAM_1C = 0, INIT_RAM_1D = 0, INIT_RAM_1E = 0, INIT_RAM_1F
    = 0, INIT_RAM_20 = 0, INIT_RAM_21 = 0, INIT_RAM_22 = 0, INIT_RAM_23 = 0, INIT_RAM_24 = 0,
    INIT_RAM_25 = 0, INIT_RAM_26 = 0, INIT_RAM_27 = 0, INIT_RAM_28 = 0, INIT_RAM_29 = 0, INIT_RAM_2A
    = 0, INIT_RAM_2B = 0, INIT_RAM_2C = 0, INIT_RAM_2D = 0, INIT_RAM_2E = 0, INIT_RAM_2F = 0,
    INIT_RAM_30 = 0, INIT_RAM_31 = 0, INIT_RAM_32 = 0, INIT_RAM_33 = 0, INIT_RAM_34 = 0, INIT_RAM_35
    = 0, INIT_RAM_36 = 0, INIT_RAM_37 = 0, INIT_RAM_38 = 0, INIT_RAM_39 = 0, INIT_RAM_3A = 0,
    INIT_RAM_3B = 0, INIT_RAM_3C = 0, INIT_RAM_3D = 0, INIT_RAM_3E = 0, INIT_RAM_3F = 0;

    wire [35:0] data;
    accelc_gowin_ram #(
        .X8(0),
        .WIDTH_A(BIT_WIDTH), .REG_A(READ_MODE), .WRITE_A(WRITE_MODE),
        .BLK_SEL_A(BLK_SEL), .RESET_MODE(RESET_MODE),
        .INIT({
            INIT_RAM_3F, INIT_RAM_3E, INIT_RAM_3D, INIT_RAM_3C, INIT_RAM_3B, INIT_RAM_3A,
            INIT_RAM_39, INIT_RAM_38, INIT_RAM_37, INIT_RAM_36, INIT_RAM_35, INIT_RAM_34,
            INIT_RAM_33, INIT_RAM_32, INIT_RAM_31, INIT_RAM_30, INIT_RAM_2F, INIT_RAM_2E,
            INIT_RAM_2D, INIT_RAM_2C, INIT_RAM_2B, INIT_RAM_2A, INIT_RAM_29, INIT_RAM_28,
            INIT_RAM_27, INIT_RAM_26, INIT_RAM_25, INIT_RAM_24, INIT_RAM_23, INIT_RAM_22,
            INIT_RAM_21, INIT_RAM_20, INIT_RAM_1F, INIT_RAM_1E, INIT_RAM_1D, INIT_RAM_1C,
            INIT_RAM_1B, INIT_RAM_1A, INIT_RAM_19, INIT_RAM_18, INIT_RAM_17, INIT_RAM_16,
            INIT_RAM_15, INIT_RAM_14, INIT_RAM_13, INIT_RAM_12, INIT_RAM_11, INIT_RAM_10,
            INIT_RAM_0F, INIT_RAM_0E, INIT_RAM_0D, INIT_RAM_0C, INIT_RAM_0B, INIT_RAM_0A,
            INIT_RAM_09, INIT_RAM_08, INIT_RAM_07, INIT_RAM_06, INIT_RAM_05, INIT_RAM_04,
            INIT_RAM_03, INIT_RAM_02, INIT_RAM_01, INIT_RAM_00
        })
    ) ram (
        .clk_a(CLK), .ce_a(CE), .oce_a(OCE), .wre_a(WRE), .reset_a(RESET),
        .blksel_a(BLKSEL), .ad_a(AD), .di_a(DI), .do_a(data),
        .clk_b(CLK), .ce_b(1'b0), .oce_b(1'b0), .wre_b(1'b0), .reset_b(1'b0),
        .blksel_b(3'b0), .ad_b(14'b0), .di_b(36'b0), .do_b()
    );
    assign DO = data[35:0];
endmodule

// WIDTH x WIDTH bits, signed or not, with optional registers before, inside and behind.
module accelc_gowin_multiplier #(
    parameter WIDTH = 9,
    parameter AREG = 0, BREG = 0, OUT_REG = 0, PIPE_REG = 0,
    parameter ASIGN_REG = 0, BSIGN_REG = 0, SOA_REG = 0,
    parameter MULT_RESET_MODE = "SYNC"
) (
    input [WIDTH - 1:0] a, sia, b, sib,
    input asign, bsign, asel, bsel, ce, clk, reset,
    output [2 * WIDTH - 1:0] dout,
    output [WIDTH - 1:0] soa, sob
);
    generate
        if (MULT_RESET_MODE != "SYNC") multiplier_reset_mode_has_no_model refused ();
    endgenerate

    wire [WIDTH - 1:0] a_used, b_used;
    wire a_sign, b_sign;
    accelc_register #(WIDTH, AREG) a_register (clk, ce, reset, asel ? sia : a, a_used);
    accelc_register #(WIDTH, BREG) b_register (clk, ce, reset, bsel ? sib : b, b_used);
    accelc_register #(1, ASIGN_REG) a_sign_register (clk, ce, reset, asign, a_sign);
    accelc_register #(1, BSIGN_REG) b_sign_register (clk, ce, reset, bsign, b_sign);
    wire signed [WIDTH:0] a_signed = {a_sign & a_used[WIDTH - 1], a_used};
    wire signed [WIDTH:0] b_signed = {b_sign & b_used[WIDTH - 1], b_used};
    wire signed [2 * WIDTH + 1:0] product = a_signed * b_signed;
    wire [2 * WIDTH - 1:0] piped;
    accelc_register #(2 * WIDTH, PIPE_REG) pipeline (
        clk, ce, reset, product[2 * WIDTH - 1:0], piped
    );
    accelc_register #(2 * WIDTH, OUT_REG) out_register (clk, ce, reset, piped, dout);
    accelc_register #(WIDTH, SOA_REG) soa_register (clk, ce, reset, a_used, soa);
    assign sob = b_used;
endmodule

module MULT9X9 (
    input [8:0] A, SIA, B, SIB,
    input ASIGN, BSIGN, ASEL, BSEL, CE, CLK, RESET,
    output [17:0] DOUT,
    output [8:0] SOA, SOB
);
    parameter AREG = 1'b0, BREG = 1'b0, OUT_REG = 1'b0, PIPE_REG = 1'b0;
    parameter ASIGN_REG = 1'b0, BSIGN_REG = 1'b0, SOA_REG = 1'b0;
    parameter MULT_RESET_MODE = "SYNC";
    accelc_gowin_multiplier #(
        9, AREG, BREG, OUT_REG, PIPE_REG, ASIGN_REG, BSIGN_REG, SOA_REG, MULT_RESET_MODE
    ) multiplier (
        A, SIA, B, SIB, ASIGN, BSIGN, ASEL, BSEL, CE, CLK, RESET, DOUT, SOA, SOB
    );
endmodule

module MULT18X18 (
    input [17:0] A, SIA, B, SIB,
    input ASIGN, BSIGN, ASEL, BSEL, CE, CLK, RESET,
    output [35:0] DOUT,
    output [17:0] SOA, SOB
);
    parameter AREG = 1'b0, BREG = 1'b0, OUT_REG = 1'b0, PIPE_REG = 1'b0;
    parameter ASIGN_REG = 1'b0, BSIGN_REG = 1'b0, SOA_REG = 1'b0;
    parameter MULT_RESET_MODE = "SYNC";
    accelc_gowin_multiplier #(
        18, AREG, BREG, OUT_REG, PIPE_REG, ASIGN_REG, BSIGN_REG, SOA_REG, MULT_RESET_MODE
    ) multiplier (
        A, SIA, B, SIB, ASIGN, BSIGN, ASEL, BSEL, CE, CLK, RESET, DOUT, SOA, SOB
    );
endmodule
