"""The host link: UART, frames, protocol and the driver on the other side."""
