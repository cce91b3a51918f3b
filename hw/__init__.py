"""The accelerator in Amaranth HDL: fetch, load, matrix and vector unit, store."""
