// ECP5 cells that Yosys has no behaviour for: block RAM (Lattice TN1264, ECP5 memory usage guide)
// and multiplier (TN1267, sysDSP usage guide). What no netlist of ours uses is refused, among it
// falling clock edges and chip selects by another pattern than 0.

module DP16KD (
    input DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6, DIA5,
    DIA4, DIA3, DIA2, DIA1, DIA0,
    input ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0,
    input CEA, OCEA, CLKA, WEA, RSTA, CSA2, CSA1, CSA0,
    output DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5,
    DOA4, DOA3, DOA2, DOA1, DOA0,
    input DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6, DIB5,
    DIB4, DIB3, DIB2, DIB1, DIB0,
    input ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0,
    input CEB, OCEB, CLKB, WEB, RSTB, CSB2, CSB1, CSB0,
    output DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5,
    DOB4, DOB3, DOB2, DOB1, DOB0
);
    parameter DATA_WIDTH_A = 18, DATA_WIDTH_B = 18;
    parameter REGMODE_A = "NOREG", REGMODE_B = "NOREG";
    parameter RESETMODE = "SYNC", ASYNC_RESET_RELEASE = "SYNC";
    parameter CSDECODE_A = "0b000", CSDECODE_B = "0b000";
    parameter WRITEMODE_A = "NORMAL", WRITEMODE_B = "NORMAL";
    parameter CLKAMUX = "CLKA", CLKBMUX = "CLKB";
    parameter GSR = "ENABLED";
    parameter INIT_DATA = "STATIC";
    parameter [319:0] INITVAL_00 = 0, INITVAL_01 = 0, INITVAL_02 = 0, INITVAL_03 = 0, INITVAL_04 =
    0, INITVAL_05 = 0, INITVAL_06 = 0, INITVAL_07 = 0, INITVAL_08 = 0, INITVAL_09 = 0, INITVAL_0A =
    0, INITVAL_0B = 0, INITVAL_0C = 0, INITVAL_0D = 0, INITVAL_0E = 0, INITVAL_0F = 0, INITVAL_10 =
    0, INITVAL_11 = 0, INITVAL_12 = 0, INITVAL_13 = 0, INITVAL_14 = 0, INITVAL_15 = 0, INITVAL_16 =
    0, INITVAL_17 = 0, INITVAL_18 = 0, INITVAL_19 = 0, INITVAL_1A = 0, INITVAL_1B = 0, INITVAL_1C =
    0, INITVAL_1D = 0, INITVAL_1E = 0, INITVAL_1F = 0, INITVAL_20 = 0, INITVAL_21 = 0, INITVAL_22 =
    0, INITVAL_23 = 0, INITVAL_24 = 0, INITVAL_25 = 0, INITVAL_26 = 0, INITVAL_27 = 0, INITVAL_28 =
    0, INITVAL_29 = 0, INITVAL_2A = 0, INITVAL_2B = 0, INITVAL_2C = 0, INITVAL_2D = 0, INITVAL_2E =
    0, INITVAL_2F = 0, INITVAL_30 = 0, INITVAL_31 = 0, INITVAL_32 = 0, INITVAL_33 = 0, INITVAL_34 =
    0, INITVAL_35 = 0, INITVAL_36 = 0, INITVAL_37 = 0, INITVAL_38 = 0, INITVAL_39 = 0, INITVAL_3A =
    0, INITVAL_3B = 0, INITVAL_3C = 0, INITVAL_3D = 0, INITVAL_3E = 0, INITVAL_3F = 0;

    // Sixteen words of 18 bits, each in 20 bits of a parameter.
    function [287:0] words(input [319:0] init);
        integer k;
        for (k = 0; k < 16; k = k + 1) words[18 * k +: 18] = init[20 * k +: 18];
    endfunction

    // 36 bits: written through both ports' data pins as port A, read as port B with the low half at
    // DOA and the high half at DOB. Narrower ports of the other side use their own pins.
    wire [17:0] dia, dib, doa, dob;
    wire [35:0] wide_a, wide_b;
    wire [13:0] ada, adb;
    assign dia = {
        DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6, DIA5, DIA4,
        DIA3, DIA2, DIA1, DIA0
    };
    assign ada = {
        ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0
    };
    assign dib = {
        DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6, DIB5, DIB4,
        DIB3, DIB2, DIB1, DIB0
    };
    assign adb = {
        ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0
    };
    assign {
        DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5, DOA4,
        DOA3, DOA2, DOA1, DOA0
    } = doa;
    assign {
        DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5, DOB4,
        DOB3, DOB2, DOB1, DOB0
    } = dob;
    assign doa = DATA_WIDTH_B == 36 ? wide_b[17:0] : wide_a[17:0];
    assign dob = DATA_WIDTH_B == 36 ? wide_b[35:18] : wide_b[17:0];

    function integer write_mode(input [127:0] mode);
        write_mode = mode == "WRITETHROUGH" ? 1 : mode == "READBEFOREWRITE" ? 2 : 0;
    endfunction

    generate
        if (CLKAMUX != "CLKA" || CLKBMUX != "CLKB"
                || CSDECODE_A != "0b000" || CSDECODE_B != "0b000")
            dp16kd_mode_has_no_model refused ();
    endgenerate

    accelc_block_ram #(
        .WIDTH_A(DATA_WIDTH_A),
        .WIDTH_B(DATA_WIDTH_B),
        .WRITE_A(write_mode(WRITEMODE_A)),
        .WRITE_B(write_mode(WRITEMODE_B)),
        .REG_A(REGMODE_A == "OUTREG"),
        .REG_B(REGMODE_B == "OUTREG"),
        .ASYNC_RESET(RESETMODE == "ASYNC"),
        .RESET_BLOCKS_WRITES(1),
        .INIT({
            words(INITVAL_3F), words(INITVAL_3E), words(INITVAL_3D), words(INITVAL_3C),
            words(INITVAL_3B), words(INITVAL_3A), words(INITVAL_39), words(INITVAL_38),
            words(INITVAL_37), words(INITVAL_36), words(INITVAL_35), words(INITVAL_34),
            words(INITVAL_33), words(INITVAL_32), words(INITVAL_31), words(INITVAL_30),
            words(INITVAL_2F), words(INITVAL_2E), words(INITVAL_2D), words(INITVAL_2C),
            words(INITVAL_2B), words(INITVAL_2A), words(INITVAL_29), words(INITVAL_28),
            words(INITVAL_27), words(INITVAL_26), words(INITVAL_25), words(INITVAL_24),
            words(INITVAL_23), words(INITVAL_22), words(INITVAL_21), words(INITVAL_20),
            words(INITVAL_1F), words(INITVAL_1E), words(INITVAL_1D), words(INITVAL_1C),
            words(INITVAL_1B), words(INITVAL_1A), words(INITVAL_19), words(INITVAL_18),
            words(INITVAL_17), words(INITVAL_16), words(INITVAL_15), words(INITVAL_14),
            words(INITVAL_13), words(INITVAL_12), words(INITVAL_11), words(INITVAL_10),
            words(INITVAL_0F), words(INITVAL_0E), words(INITVAL_0D), words(INITVAL_0C),
            words(INITVAL_0B), words(INITVAL_0A), words(INITVAL_09), words(INITVAL_08),
            words(INITVAL_07), words(INITVAL_06), words(INITVAL_05), words(INITVAL_04),
            words(INITVAL_03), words(INITVAL_02), words(INITVAL_01), words(INITVAL_00)
        })
    ) ram (
        .clk_a(CLKA), .en_a(CEA & ~(CSA2 | CSA1 | CSA0)), .oce_a(OCEA), .we_a(WEA), .reset_a(RSTA),
        .ad_a(ada), .di_a({dib & {18{DATA_WIDTH_A == 36}}, dia}), .do_a(wide_a),
        .clk_b(CLKB), .en_b(CEB & ~(CSB2 | CSB1 | CSB0)), .oce_b(OCEB), .we_b(WEB), .reset_b(RSTB),
        .ad_b(adb), .di_b({18'b0, dib}), .do_b(wide_b)
    );
endmodule

// 18 x 18 bits, signed or not, with optional registers before, inside and behind. SIGNEDA and
// SIGNEDB are taken as constants: they pass no register here.
module MULT18X18D (
    input A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0,
    input B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0,
    input C17, C16, C15, C14, C13, C12, C11, C10, C9, C8, C7, C6, C5, C4, C3, C2, C1, C0,
    input SIGNEDA, SIGNEDB, SOURCEA, SOURCEB,
    input CLK3, CLK2, CLK1, CLK0, CE3, CE2, CE1, CE0, RST3, RST2, RST1, RST0,
    input SRIA17, SRIA16, SRIA15, SRIA14, SRIA13, SRIA12, SRIA11, SRIA10, SRIA9, SRIA8, SRIA7,
    SRIA6, SRIA5, SRIA4, SRIA3, SRIA2, SRIA1, SRIA0,
    input SRIB17, SRIB16, SRIB15, SRIB14, SRIB13, SRIB12, SRIB11, SRIB10, SRIB9, SRIB8, SRIB7,
    SRIB6, SRIB5, SRIB4, SRIB3, SRIB2, SRIB1, SRIB0,
    output SROA17, SROA16, SROA15, SROA14, SROA13, SROA12, SROA11, SROA10, SROA9, SROA8, SROA7,
    SROA6, SROA5, SROA4, SROA3, SROA2, SROA1, SROA0,
    output SROB17, SROB16, SROB15, SROB14, SROB13, SROB12, SROB11, SROB10, SROB9, SROB8, SROB7,
    SROB6, SROB5, SROB4, SROB3, SROB2, SROB1, SROB0,
    output ROA17, ROA16, ROA15, ROA14, ROA13, ROA12, ROA11, ROA10, ROA9, ROA8, ROA7, ROA6, ROA5,
    ROA4, ROA3, ROA2, ROA1, ROA0,
    output ROB17, ROB16, ROB15, ROB14, ROB13, ROB12, ROB11, ROB10, ROB9, ROB8, ROB7, ROB6, ROB5,
    ROB4, ROB3, ROB2, ROB1, ROB0,
    output ROC17, ROC16, ROC15, ROC14, ROC13, ROC12, ROC11, ROC10, ROC9, ROC8, ROC7, ROC6, ROC5,
    ROC4, ROC3, ROC2, ROC1, ROC0,
    output P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19, P18,
    P17, P16, P15, P14, P13, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0, SIGNEDP
);
    parameter REG_INPUTA_CLK = "NONE", REG_INPUTA_CE = "CE0", REG_INPUTA_RST = "RST0";
    parameter REG_INPUTB_CLK = "NONE", REG_INPUTB_CE = "CE0", REG_INPUTB_RST = "RST0";
    parameter REG_INPUTC_CLK = "NONE", REG_INPUTC_CE = "CE0", REG_INPUTC_RST = "RST0";
    parameter REG_PIPELINE_CLK = "NONE", REG_PIPELINE_CE = "CE0", REG_PIPELINE_RST = "RST0";
    parameter REG_OUTPUT_CLK = "NONE", REG_OUTPUT_CE = "CE0", REG_OUTPUT_RST = "RST0";
    parameter CLK0_DIV = "ENABLED", CLK1_DIV = "ENABLED";
    parameter CLK2_DIV = "ENABLED", CLK3_DIV = "ENABLED";
    parameter HIGHSPEED_CLK = "NONE", GSR = "ENABLED", CAS_MATCH_REG = "FALSE";
    parameter SOURCEB_MODE = "B_SHIFT", MULT_BYPASS = "DISABLED", RESETMODE = "SYNC";

    generate
        if (SOURCEB_MODE != "B_SHIFT" || MULT_BYPASS != "DISABLED" || RESETMODE != "SYNC"
                || HIGHSPEED_CLK != "NONE")
            mult18x18d_mode_has_no_model refused ();
    endgenerate

    // The one of four pins that a parameter such as "CE2" names; the number is its last letter.
    function choose(input [31:0] name, input [3:0] pins);
        choose = pins[name[1:0]];
    endfunction
    wire [3:0] clk = {CLK3, CLK2, CLK1, CLK0};
    wire [3:0] ce = {CE3, CE2, CE1, CE0};
    wire [3:0] rst = {RST3, RST2, RST1, RST0};

    wire [17:0] a, b;
    assign a = SOURCEA ? {
        SRIA17, SRIA16, SRIA15, SRIA14, SRIA13, SRIA12, SRIA11, SRIA10, SRIA9, SRIA8, SRIA7, SRIA6,
        SRIA5, SRIA4, SRIA3, SRIA2, SRIA1, SRIA0
    } : {
        A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0
    };
    assign b = SOURCEB ? {
        SRIB17, SRIB16, SRIB15, SRIB14, SRIB13, SRIB12, SRIB11, SRIB10, SRIB9, SRIB8, SRIB7, SRIB6,
        SRIB5, SRIB4, SRIB3, SRIB2, SRIB1, SRIB0
    } : {
        B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0
    };

    wire [17:0] a_used, b_used;
    accelc_register #(18, REG_INPUTA_CLK != "NONE") a_register (
        choose(REG_INPUTA_CLK, clk), choose(REG_INPUTA_CE, ce), choose(REG_INPUTA_RST, rst),
        a, a_used
    );
    accelc_register #(18, REG_INPUTB_CLK != "NONE") b_register (
        choose(REG_INPUTB_CLK, clk), choose(REG_INPUTB_CE, ce), choose(REG_INPUTB_RST, rst),
        b, b_used
    );
    wire signed [18:0] a_signed = {SIGNEDA & a_used[17], a_used};
    wire signed [18:0] b_signed = {SIGNEDB & b_used[17], b_used};
    wire signed [37:0] product = a_signed * b_signed;
    wire [35:0] piped, p;
    accelc_register #(36, REG_PIPELINE_CLK != "NONE") pipeline (
        choose(REG_PIPELINE_CLK, clk), choose(REG_PIPELINE_CE, ce), choose(REG_PIPELINE_RST, rst),
        product[35:0], piped
    );
    accelc_register #(36, REG_OUTPUT_CLK != "NONE") out_register (
        choose(REG_OUTPUT_CLK, clk), choose(REG_OUTPUT_CE, ce), choose(REG_OUTPUT_RST, rst),
        piped, p
    );
    assign {
        P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19, P18,
        P17, P16, P15, P14, P13, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0
    } = p;
    assign SIGNEDP = SIGNEDA | SIGNEDB;
    assign {
        ROA17, ROA16, ROA15, ROA14, ROA13, ROA12, ROA11, ROA10, ROA9, ROA8, ROA7, ROA6, ROA5, ROA4,
        ROA3, ROA2, ROA1, ROA0
    } = a_used;
    assign {
        SROA17, SROA16, SROA15, SROA14, SROA13, SROA12, SROA11, SROA10, SROA9, SROA8, SROA7, SROA6,
        SROA5, SROA4, SROA3, SROA2, SROA1, SROA0
    } = a_used;
    assign {
        ROB17, ROB16, ROB15, ROB14, ROB13, ROB12, ROB11, ROB10, ROB9, ROB8, ROB7, ROB6, ROB5, ROB4,
        ROB3, ROB2, ROB1, ROB0
    } = b_used;
    assign {
        SROB17, SROB16, SROB15, SROB14, SROB13, SROB12, SROB11, SROB10, SROB9, SROB8, SROB7, SROB6,
        SROB5, SROB4, SROB3, SROB2, SROB1, SROB0
    } = b_used;
    assign {
        ROC17, ROC16, ROC15, ROC14, ROC13, ROC12, ROC11, ROC10, ROC9, ROC8, ROC7, ROC6, ROC5, ROC4,
        ROC3, ROC2, ROC1, ROC0
    } = 18'b0;
endmodule
