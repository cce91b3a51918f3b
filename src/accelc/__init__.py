"""accelc: from a trained ONNX network to an accelerator on a cheap FPGA."""

__version__ = "0.1.0"
