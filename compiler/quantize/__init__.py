"""Quantization of float networks: a float graph and what its values look like, to a QDQ graph.

Nothing here runs a network or reads data; ``accelc.quantizer`` drives it.
"""
