"""Boards people own: what they are, their gateware, bitstreams, simulation and drivers."""
