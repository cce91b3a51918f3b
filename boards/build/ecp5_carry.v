// A carry cell's input that is 0 costs a wire from the one cell that makes zeros, wherever that is;
// an input that is 1 costs nothing, for inputs without a wire read 1. So where an input is 0 its
// table says the same for 1, and 1 it becomes. What the cell adds comes from the table's low nibble,
// where C and D are 0: that has only ever the values of inputs that stay as they are.
(* techmap_celltype = "CCU2C" *)
module _accelc_carry_without_zeros (
    input CIN, A0, B0, C0, D0, A1, B1, C1, D1,
    output S0, S1, COUT
);
    parameter INIT0 = 16'h0000;
    parameter INIT1 = 16'h0000;
    parameter INJECT1_0 = "YES";
    parameter INJECT1_1 = "YES";

    parameter _TECHMAP_CONSTMSK_A0_ = 0;
    parameter _TECHMAP_CONSTMSK_B0_ = 0;
    parameter _TECHMAP_CONSTMSK_C0_ = 0;
    parameter _TECHMAP_CONSTMSK_D0_ = 0;
    parameter _TECHMAP_CONSTMSK_A1_ = 0;
    parameter _TECHMAP_CONSTMSK_B1_ = 0;
    parameter _TECHMAP_CONSTMSK_C1_ = 0;
    parameter _TECHMAP_CONSTMSK_D1_ = 0;
    parameter _TECHMAP_CONSTVAL_A0_ = 0;
    parameter _TECHMAP_CONSTVAL_B0_ = 0;
    parameter _TECHMAP_CONSTVAL_C0_ = 0;
    parameter _TECHMAP_CONSTVAL_D0_ = 0;
    parameter _TECHMAP_CONSTVAL_A1_ = 0;
    parameter _TECHMAP_CONSTVAL_B1_ = 0;
    parameter _TECHMAP_CONSTVAL_C1_ = 0;
    parameter _TECHMAP_CONSTVAL_D1_ = 0;

    localparam [3:0] ZERO0 = {
        _TECHMAP_CONSTMSK_D0_[0] & ~_TECHMAP_CONSTVAL_D0_[0],
        _TECHMAP_CONSTMSK_C0_[0] & ~_TECHMAP_CONSTVAL_C0_[0],
        _TECHMAP_CONSTMSK_B0_[0] & ~_TECHMAP_CONSTVAL_B0_[0],
        _TECHMAP_CONSTMSK_A0_[0] & ~_TECHMAP_CONSTVAL_A0_[0]
    };
    localparam [3:0] ZERO1 = {
        _TECHMAP_CONSTMSK_D1_[0] & ~_TECHMAP_CONSTVAL_D1_[0],
        _TECHMAP_CONSTMSK_C1_[0] & ~_TECHMAP_CONSTVAL_C1_[0],
        _TECHMAP_CONSTMSK_B1_[0] & ~_TECHMAP_CONSTVAL_B1_[0],
        _TECHMAP_CONSTMSK_A1_[0] & ~_TECHMAP_CONSTVAL_A1_[0]
    };
    wire _TECHMAP_FAIL_ = ~(|ZERO0 | |ZERO1);

    function [15:0] table_for(input [15:0] init, input [3:0] zero);
        integer i;
        for (i = 0; i < 16; i = i + 1)
            table_for[i] = init[i & ~zero & 15];
    endfunction

    CCU2C #(
        .INIT0(table_for(INIT0, ZERO0)),
        .INIT1(table_for(INIT1, ZERO1)),
        .INJECT1_0(INJECT1_0),
        .INJECT1_1(INJECT1_1)
    ) _TECHMAP_REPLACE_ (
        .CIN(CIN), .S0(S0), .S1(S1), .COUT(COUT),
        .A0(ZERO0[0] ? 1'b1 : A0), .B0(ZERO0[1] ? 1'b1 : B0),
        .C0(ZERO0[2] ? 1'b1 : C0), .D0(ZERO0[3] ? 1'b1 : D0),
        .A1(ZERO1[0] ? 1'b1 : A1), .B1(ZERO1[1] ? 1'b1 : B1),
        .C1(ZERO1[2] ? 1'b1 : C1), .D1(ZERO1[3] ? 1'b1 : D1)
    );
endmodule
