"""Memory behind the accelerator: SDR SDRAM, SPRAM, block RAM, behind one AXI4 port."""
