"""Devices that run programs on this machine: golden, functional, timing and RTL."""
