"""Words of the MLPerf Tiny serial protocol, as the benchmark's monitor 2.2.0 has them.

Source: mlcommons/tiny, ``benchmark/api/internally_implemented.{h,cpp}``. Commands end with ``%``;
every answer ends with ``m-ready``.
"""

#: Ends a command.
TERMINATOR = b"%"
READY = "m-ready\r\n"
#: Baud rate of the benchmark's performance and accuracy modes.
BAUD = 115_200

#: Commands and answers, by the name the processor's program has for them.
TEXTS: dict[str, str] = {
    "C_NAME": "name",
    "C_TIMESTAMP": "timestamp",
    "C_PROFILE": "profile",
    "C_HELP": "help",
    "C_DB": "db",
    "C_LOAD": "load",
    "C_PRINT": "print",
    "C_INFER": "infer",
    "C_RESULTS": "results",
    "INIT": "m-init-done\r\n",
    "READY": READY,
    "NAME": "m-name-dut-[",
    "PROFILE": "m-profile-[ULPMark for tinyML Firmware V0.0.1]\r\nm-model-[",
    "END": "]\r\n",
    "LAP": "m-lap-us-",
    "NEWLINE": "\r\n",
    "EXPECTING": "m-[Expecting ",
    "BYTES": " bytes]\r\n",
    "LOADED": "m-load-done\r\n",
    "BUFFER": "m-buffer-",
    "WARMUP": "m-warmup-start-",
    "WARMED": "m-warmup-done\r\n",
    "START": "m-infer-start-",
    "DONE": "m-infer-done\r\n",
    "RESULTS": "m-results-[",
    "E_UNKNOWN": "e-[Unknown command: ",
    "E_DB": "e-[Command 'db' requires a subcommand]\r\n",
    "E_ZERO": "e-[Command 'db load' must be >0 bytes]\r\n",
    "E_SIZE": "e-[The network takes ",
    "E_DIGITS": "e-[Insufficent number of hex digits]\r\n",
    "E_HEX": "e-[Invalid hex digit]\r\n",
    "E_INPUT": "e-[Input is not loaded]\r\n",
    "E_INFER": "e-[Inference iterations must be >0]\r\n",
    "E_CORE": "e-[Accelerator error ",
    "HELP": (
        "name, profile, timestamp, db load N, db HH[HH]*, db print, infer N [W=10], results\r\n"
    ),
}
