"""Whether an instruction list can run to its end: every wait finds its token."""

from accelc.isa.registers import ErrorCode
from accelc.isa.spec import INSTRUCTIONS, Opcode, Unit
from accelc.sim.descriptors import OPCODE, SIGNAL, WAIT, Descriptors
from accelc.sim.faults import device_fault

_UNIT_OF = {int(opcode): cls.unit for opcode, cls in INSTRUCTIONS.items()}


def check_tokens(descriptors: Descriptors) -> None:
    """Play the token exchange without time.

    The four units take instructions in order and tokens are counted, so whether the program
    stops does not depend on how fast each unit is, and one order of play decides it.

    Raises:
        DeviceError: WATCHDOG, naming the first instruction that waits for ever.
    """
    queues: list[list[tuple[int, int, int]]] = [[] for _ in Unit]
    header = descriptors.table[:, [OPCODE, WAIT, SIGNAL]].tolist()
    for index, (opcode, wait, signal) in enumerate(header):
        unit = _UNIT_OF[opcode]
        if unit is not None:
            queues[unit].append((index, wait, signal))
    tokens = [[0] * len(Unit) for _ in Unit]
    heads = [0] * len(Unit)
    progress = True
    while progress:
        progress = False
        for unit in Unit:
            queue, received = queues[unit], tokens[unit]
            while heads[unit] < len(queue):
                _, wait, signal = queue[heads[unit]]
                if any(wait >> other & 1 and not received[other] for other in Unit):
                    break
                for other in Unit:
                    received[other] -= wait >> other & 1
                    tokens[other][unit] += signal >> other & 1
                heads[unit] += 1
                progress = True
    stuck = [(queues[u][heads[u]][0], u) for u in Unit if heads[u] < len(queues[u])]
    if stuck:
        index, unit = min(stuck)
        missing = [
            o.name.lower() for o in Unit if header[index][1] >> o & 1 and not tokens[unit][o]
        ]
        raise device_fault(
            ErrorCode.WATCHDOG, unit, index, f"waits for a token from {' and '.join(missing)}"
        )


# FINISH belongs to no unit; the table above must know every other opcode.
assert set(_UNIT_OF) == set(map(int, Opcode))
