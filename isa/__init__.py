"""The instruction set: configuration, encoding, semantics. Imports nothing else of accelc."""
