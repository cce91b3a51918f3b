// An optional register of a DSP block, with enable and synchronous reset.
module accelc_register #(
    parameter WIDTH = 1,
    parameter PRESENT = 1
) (
    input clk, ce, reset,
    input [WIDTH - 1:0] d,
    output [WIDTH - 1:0] q
);
    generate
        if (PRESENT != 0) begin : present
            reg [WIDTH - 1:0] state = 0;
            always @(posedge clk)
                if (reset) state <= 0;
                else if (ce) state <= d;
            assign q = state;
        end else begin : absent
            assign q = d;
        end
    endgenerate
endmodule
