"""From a board to its bitstream: synthesis, place and route, packing, reports."""
