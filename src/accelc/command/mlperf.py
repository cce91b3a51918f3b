"""``accelc mlperf``: hands a board to the runner of the MLPerf Tiny benchmarks."""

import contextlib
import time
from pathlib import Path

import click

from accelc.command import console
from accelc.isa.errors import InputError

#: Clock cycles of a bit where the board is simulated: what the processor on the board needs for a
#: character. Its clock divided by this is the simulated line's rate, but a terminal has none.
SIMULATED_CYCLES_PER_BIT = 32


@click.command(short_help="Hand a board to the MLPerf Tiny runner.")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--on", "address", required=True, metavar="PORT|sim:BOARD", help="The board.")
@click.option(
    "--benchmark",
    required=True,
    metavar="NAME",
    help="kws01, ic01, vww01 or ad01: what the board tells the runner it is.",
)
def mlperf(artifact: Path, address: str, benchmark: str) -> None:
    """Put ARTIFACT on a board and hand its serial port to the MLPerf Tiny runner.

    From then on the board itself answers the benchmark's commands, at 115200 baud, until it is
    reset or another accelc command takes the port back. A simulated board lives until Ctrl-C;
    its port is printed.

    \b
    Examples:
      accelc compile kws.onnx --config ulx3s-25f -o kws.accel
      accelc mlperf kws.accel --on /dev/ttyUSB0 --benchmark kws01
      accelc mlperf kws.accel --on sim:ulx3s-25f --benchmark kws01
    """
    from accelc.artifact import Artifact
    from accelc.attached import check_address, is_simulated, open_board
    from accelc.boards.mlperf.protocol import BAUD
    from accelc.mlperf import BENCHMARKS, install

    if benchmark not in BENCHMARKS:
        names = ", ".join(BENCHMARKS)
        raise InputError(f"there is no benchmark {benchmark!r}; there are {names}")
    check_address(address)
    network = Artifact.load(artifact)
    with console.progress(f"opening {address}") as report:
        connection = open_board(
            address, network.config, report, cycles_per_bit=SIMULATED_CYCLES_PER_BIT
        )
        try:
            prepared = install(network, benchmark, connection)
        except BaseException:
            connection.close()
            raise
    console.show(
        f"{connection.port}: board {connection.record.name} answers the MLPerf Tiny runner as "
        f"{benchmark}, at {BAUD} baud; inputs of {console.count(prepared.input_bytes)} bytes"
    )
    with connection, contextlib.suppress(KeyboardInterrupt):
        if is_simulated(address):
            console.note("press Ctrl-C to end the simulation")
            while True:
                time.sleep(3600)
