"""The command line: one module per group of commands, ``main`` puts them together."""
