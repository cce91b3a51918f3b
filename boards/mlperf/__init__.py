"""The MLPerf Tiny serial protocol on the board: a tiny processor and its program."""
