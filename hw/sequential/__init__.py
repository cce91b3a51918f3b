"""The core for the smallest FPGAs: same instructions, executed one at a time."""
