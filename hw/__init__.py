"""The accelerator in Amaranth HDL: fetch, load, matrix unit, vector unit, store and what joins them."""
