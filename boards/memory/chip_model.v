// A single-data-rate SDRAM that stores data and checks every rule its user must keep.
//
// Times are femtoseconds, so that any clock's period is a whole number, and distances are compared
// as times: nothing here shares the controller's rounding to cycles. A violation is counted; the
// first one is kept with its rule and its time. The model then goes on as well as it can.
//
// Not modelled, and reported when used: automatic precharge, burst stop, full-page and interleaved
// bursts, single writes, power-down and self refresh, bursts cut short by the next command.
module sdram_model #(
  parameter DATA_BITS = 16,
  parameter BANK_BITS = 2,
  parameter ROW_BITS = 13,
  parameter COLUMN_BITS = 9,
  parameter [63:0] PERIOD = 0,
  // Shortest periods at CAS latency 2 and 3; 0 when the chip does not have it.
  parameter [63:0] TCK2 = 0,
  parameter [63:0] TCK3 = 0,
  parameter [63:0] TRC = 0,
  parameter [63:0] TRCD = 0,
  parameter [63:0] TRP = 0,
  parameter [63:0] TRAS_MIN = 0,
  parameter [63:0] TRAS_MAX = 0,
  parameter [63:0] TWR = 0,
  parameter [63:0] TRRD = 0,
  parameter [63:0] TRFC = 0,
  parameter [63:0] TMRD = 0,
  parameter [63:0] TREF = 0,
  parameter [63:0] TINIT = 0,
  // Refreshes the power-up sequence needs.
  parameter INIT_REFRESHES = 2,
  // Further cycles from the chip to the controller.
  parameter IO_CYCLES = 0
) (
  input clk,
  // As if the power was off; only the contents stay, as they may in a short pause.
  input rst,
  input cke,
  input cs_n,
  input ras_n,
  input cas_n,
  input we_n,
  input [BANK_BITS-1:0] ba,
  input [ROW_BITS-1:0] a,
  input [DATA_BITS/8-1:0] dqm,
  input [DATA_BITS-1:0] dq_o,
  input dq_oe,
  output [DATA_BITS-1:0] dq_i,
  output reg [31:0] violations,
  output reg [7:0] first_rule,
  output reg [63:0] first_time
);
  localparam BANKS = 1 << BANK_BITS;
  localparam ROWS = 1 << ROW_BITS;
  localparam [63:0] INTERVAL = TREF / ROWS;
  // Refreshes that may be late at any time, as long as each row is in time.
  localparam [63:0] POSTPONED = 9;

  // Rules; `RULES` in chip_model.py says what they mean.
  localparam [7:0]
    INIT_PAUSE = 1, INIT_ORDER = 2, UNSUPPORTED = 3, MODE_VALUE = 4, BANK_NOT_IDLE = 5,
    BANK_NOT_OPEN = 6, T_RC = 7, T_RCD = 8, T_RP = 9, T_RAS_MIN = 10, T_RAS_MAX = 11, T_WR = 12,
    T_RRD = 13, T_RFC = 14, T_MRD = 15, REFRESH_LATE = 16, ROW_LATE = 17, BURST_CUT = 18,
    NO_DATA = 19, CONTENTION = 20;

  reg [DATA_BITS-1:0] cells [0:(1 << (BANK_BITS + ROW_BITS + COLUMN_BITS)) - 1];

  // Never: long before power-up, so that nothing is too early.
  localparam signed [63:0] NEVER = -64'sd1000000000000000000;
  reg signed [63:0] now;
  reg signed [63:0] activated [0:BANKS-1];
  reg signed [63:0] precharged [0:BANKS-1];
  reg signed [63:0] written [0:BANKS-1];
  reg signed [63:0] any_activated, refreshed, mode_set;
  reg [BANKS-1:0] open;
  reg [ROW_BITS-1:0] row [0:BANKS-1];

  reg closed_once, mode_known;
  reg [3:0] init_refreshes;
  reg [2:0] cas;
  reg [3:0] burst;

  // How much later than their average refreshes are, and when each row's last one was.
  reg signed [63:0] lateness;
  reg [ROW_BITS-1:0] refresh_row;
  reg signed [63:0] row_refreshed [0:ROWS-1];

  // The burst in progress: words still to come, after this edge.
  reg reading, writing;
  reg [3:0] words_left;
  reg [BANK_BITS-1:0] burst_bank;
  reg [ROW_BITS-1:0] burst_row;
  reg [COLUMN_BITS-1:0] burst_column;

  // What the chip shows after this edge (0) and later ones, and the masks of the edges before.
  reg [DATA_BITS-1:0] show [0:3];
  reg [3:0] shows;
  reg [DATA_BITS/8-1:0] mask1;
  reg [DATA_BITS-1:0] noise;
  reg shown_before;
  reg [DATA_BITS-1:0] dq;

  wire [2:0] command = {ras_n, cas_n, we_n};
  wire active = cke && !cs_n && command != 3'b111;
  wire initialised = mode_known && init_refreshes >= INIT_REFRESHES;
  wire [31:0] wide_a = a;
  integer i;

  task fail(input [7:0] rule);
    begin
      if (violations == 0) begin
        first_rule = rule;
        first_time = now;
      end
      violations = violations + 1;
    end
  endtask

  task too_early(input signed [63:0] since, input [63:0] distance, input [7:0] rule);
    if (now - since < $signed(distance)) fail(rule);
  endtask

  // Everything a command to all banks needs.
  task all_idle;
    begin
      if (open != 0) fail(BANK_NOT_IDLE);
      for (i = 0; i < BANKS; i = i + 1) too_early(precharged[i], TRP, T_RP);
      too_early(refreshed, TRFC, T_RFC);
      too_early(mode_set, TMRD, T_MRD);
    end
  endtask

  task close(input integer bank);
    if (open[bank]) begin
      too_early(activated[bank], TRAS_MIN, T_RAS_MIN);
      if (now - activated[bank] > $signed(TRAS_MAX)) fail(T_RAS_MAX);
      too_early(written[bank], TWR, T_WR);
      if ((reading || writing) && burst_bank == bank) fail(BURST_CUT);
      open[bank] = 0;
      precharged[bank] = now;
    end
  endtask

  task column_command;
    begin
      if (!initialised) fail(INIT_ORDER);
      if (!open[ba]) fail(BANK_NOT_OPEN);
      too_early(activated[ba], TRCD, T_RCD);
      if (reading || writing) fail(BURST_CUT);
      if (a[10]) fail(UNSUPPORTED);
      words_left = burst;
      burst_bank = ba;
      burst_row = row[ba];
      burst_column = (wide_a & 1023) | (wide_a >> 11 << 10);
      if ((burst_column & (burst - 1)) != 0) fail(UNSUPPORTED);
    end
  endtask

  task mode_register;
    begin
      all_idle;
      if (!closed_once) fail(INIT_ORDER);
      cas = a[6:4];
      burst = 4'd1 << a[1:0];
      if (a[2] || a[3] || a[ROW_BITS-1:7] != 0 || ba != 0) fail(MODE_VALUE);
      if (!(cas == 2 && TCK2 != 0 && PERIOD >= TCK2) && !(cas == 3 && TCK3 != 0 && PERIOD >= TCK3))
        fail(MODE_VALUE);
      mode_known = 1;
      mode_set = now;
    end
  endtask

  task refresh;
    begin
      all_idle;
      if (!closed_once) fail(INIT_ORDER);
      refreshed = now;
      if (init_refreshes != 15) init_refreshes = init_refreshes + 1;
      if (now - row_refreshed[refresh_row] > $signed(TREF)) fail(ROW_LATE);
      row_refreshed[refresh_row] = now;
      refresh_row = refresh_row + 1;
      // Ahead of time does not count: what matters is the next one.
      lateness = lateness - INTERVAL;
      if (lateness < 0) lateness = 0;
    end
  endtask

  task power_up;
    begin
      violations = 0;
      first_rule = 0;
      first_time = 0;
      now = 0;
      for (i = 0; i < BANKS; i = i + 1) begin
        activated[i] = NEVER;
        precharged[i] = NEVER;
        written[i] = NEVER;
      end
      // A row's time begins when the chip is used.
      for (i = 0; i < ROWS; i = i + 1) row_refreshed[i] = TINIT;
      any_activated = NEVER;
      refreshed = NEVER;
      mode_set = NEVER;
      open = 0;
      closed_once = 0;
      mode_known = 0;
      init_refreshes = 0;
      cas = 3;
      burst = 1;
      lateness = 0;
      refresh_row = 0;
      reading = 0;
      writing = 0;
      words_left = 0;
      shows = 0;
      mask1 = 0;
      noise = 1;
      shown_before = 0;
    end
  endtask

  initial power_up;

  always @(posedge clk)
    if (rst) power_up;
    else begin
      now = now + PERIOD;
      noise = {noise[DATA_BITS-2:0], noise[DATA_BITS-1] ^ noise[DATA_BITS-3]};

      if (active) begin
        if (now < $signed(TINIT)) fail(INIT_PAUSE);
        case (command)
          3'b011: begin  // ACTIVATE
            if (!initialised) fail(INIT_ORDER);
            if (open[ba]) fail(BANK_NOT_IDLE);
            too_early(precharged[ba], TRP, T_RP);
            too_early(activated[ba], TRC, T_RC);
            too_early(any_activated, TRRD, T_RRD);
            too_early(refreshed, TRFC, T_RFC);
            too_early(mode_set, TMRD, T_MRD);
            open[ba] = 1;
            row[ba] = a;
            activated[ba] = now;
            any_activated = now;
          end
          3'b101: begin  // READ
            column_command;
            reading = 1;
          end
          3'b100: begin  // WRITE
            column_command;
            writing = 1;
          end
          3'b010: begin  // PRECHARGE
            too_early(refreshed, TRFC, T_RFC);
            too_early(mode_set, TMRD, T_MRD);
            for (i = 0; i < BANKS; i = i + 1)
              if (a[10] || ba == i) close(i);
            if (a[10]) begin
              closed_once = 1;
              for (i = 0; i < BANKS; i = i + 1) precharged[i] = now;
            end
          end
          3'b001: refresh;
          3'b000: mode_register;
          default: fail(UNSUPPORTED);  // burst stop
        endcase
      end
      if (!cke && now >= $signed(TINIT)) fail(UNSUPPORTED);

      // The data bus: the chip shows a word up to this edge and needs another cycle to let go of it.
      // A mask hides what is sampled two edges after it, which is shown from the next edge on.
      if (dq_oe && (shows[0] || shown_before)) fail(CONTENTION);
      shown_before = shows[0];
      show[0] = show[1];
      show[1] = show[2];
      show[2] = show[3];
      shows = shows >> 1;
      for (i = 0; i < DATA_BITS / 8; i = i + 1)
        if (mask1[i]) show[0][8 * i +: 8] = noise[7:0];
      mask1 = dqm;
      if (reading) begin
        show[cas - 1] = cells[{burst_row, burst_bank, burst_column}];
        shows[cas - 1] = 1;
      end
      if (writing) begin
        if (!dq_oe) fail(NO_DATA);
        for (i = 0; i < DATA_BITS / 8; i = i + 1)
          if (!dqm[i]) cells[{burst_row, burst_bank, burst_column}][8 * i +: 8] = dq_o[8 * i +: 8];
        written[burst_bank] = now;
      end
      if (reading || writing) begin
        burst_column = burst_column + 1;
        words_left = words_left - 1;
        if (words_left == 0) begin
          reading = 0;
          writing = 0;
        end
      end

      dq <= shows[0] ? show[0] : noise;

      if (initialised) begin
        lateness = lateness + PERIOD;
        if (lateness > $signed(POSTPONED * INTERVAL)) begin
          fail(REFRESH_LATE);
          lateness = 0;
        end
      end
    end

  generate
    if (IO_CYCLES == 0) begin : direct
      assign dq_i = dq;
    end else begin : delayed
      reg [DATA_BITS*IO_CYCLES-1:0] way;
      always @(posedge clk) way <= {way, dq};
      assign dq_i = way[DATA_BITS*IO_CYCLES-1 -: DATA_BITS];
    end
  endgenerate
endmodule
