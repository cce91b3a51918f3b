"""accelc: from a trained ONNX network to an accelerator on a cheap FPGA."""
