"""Compiles and runs hostile models for as long as one likes: outputs or one error, and soon.

    python benchmarks/fuzz.py --models ../shared/models --minutes 20
    python benchmarks/fuzz.py --models ../shared/models --seed 4711 --save mutant.onnx

Seed by seed a mutant of one of onnx's operator tests (attributes, operands, constants and nodes at
random), every twentieth of a network (the example and those in the folder ``--models``), and every
twentieth noise. A process of its own compiles each, for the CPU or for CPU and accelerator, and
runs it. The answer must be outputs or an ``AccelcError`` of one line, within LIMIT_SECONDS of
processor time and LIMIT_BYTES of memory more than the model undamaged takes. Any other exception,
the end of the process, and what breaks those limits is a finding.

Every mutant is a line in ``--log``, behind whose last seed the next run goes on. ``--seed`` tries
one again, in this process, and shows where it went wrong. The exit code is 1 if anything was found.
"""

import argparse
import contextlib
import json
import os
import random
import resource
import selectors
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import hostile

import accelc
from accelc.compiler import memory_limit
from accelc.inputs import random_inputs
from accelc.isa.errors import AccelcError

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "models" / "digits_resnet8_int8.onnx"
LIMIT_SECONDS = 10.0
LIMIT_BYTES = 1 << 30
#: Address space a process may take beyond what it has at its start; more is refused by the system.
SPACE_BYTES = 4 << 30
#: Seconds without an answer, whatever the load of the machine, that are taken for a hang.
SILENT_SECONDS = 180.0
#: Mutants a process tries before a new one takes its place.
MUTANTS_A_PROCESS = 1000
#: Every one of so many seeds is a network's mutant, and one noise.
_CYCLE = 20
#: What is no finding.
SOUND = ("ran", "refused")


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of one mutant.

    Members:
        outcome: ``ran``, ``refused``; ``defect``, ``slow``, ``memory``; ``crash``, ``hang``.
        seconds: processor time.
        bytes: largest resident memory beyond what the process had before.
    """

    seed: int
    source: str
    mutation: str
    target: str
    outcome: str
    said: str = ""
    seconds: float = 0.0
    bytes: int = 0


@dataclass(frozen=True)
class Mutant:
    source: str
    mutation: str
    target: str
    data: bytes

    def result(self, seed: int, outcome: str, said: str, **measured: Any) -> Result:
        return Result(
            seed=seed,
            source=self.source,
            mutation=self.mutation,
            target=self.target,
            outcome=outcome,
            said=said,
            **measured,
        )


class Mutants:
    """Sound models, and what a seed makes of them."""

    def __init__(self, folder: Path | None) -> None:
        self.operators = {
            name: model.SerializeToString() for name, model in hostile.operator_tests().items()
        }
        paths = [EXAMPLE, *(sorted(folder.glob("*.onnx")) if folder else ())]
        self.networks = {path.stem: path.read_bytes() for path in paths}

    def __call__(self, seed: int) -> Mutant:
        rng = random.Random(seed)
        target = rng.choice(("cpu", "cpu", "vta"))
        if seed % _CYCLE == 1:
            return Mutant("", "noise", target, hostile.noise(rng))
        sources = self.networks if seed % _CYCLE == 0 else self.operators
        source = rng.choice(list(sources))
        weights = {"attributes": 6, "operands": 4, "nodes": 4, "constants": 3, "heads": 2}
        names = list(hostile.MUTATIONS)
        (name,) = rng.choices(names, [weights.get(name, 1) for name in names])
        return Mutant(source, name, target, hostile.MUTATIONS[name](rng, sources[source]))


def _status(key: str) -> int:
    """A number of bytes in this process's status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) << 10
    return 0


def _attempt(data: bytes, target: str) -> str:
    """Compile and run; what the error said, "" for outputs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mutant.onnx"
        path.write_bytes(data)
        try:
            session = accelc.load(accelc.compile(path, target, "1x8x8"), "functional")
            session.run(random_inputs(session.inputs, 0))
        except AccelcError as error:
            return str(error) or "an error without words"
    return ""


class Judge:
    """Tries mutants in this process."""

    def __init__(self, mutants: Mutants) -> None:
        self.mutants = mutants
        #: Seconds and bytes that networks take undamaged.
        self.sound: dict[tuple[str, str], tuple[float, int]] = {}
        # what is refused must not depend on the machine
        memory_limit.available_bytes = lambda: LIMIT_BYTES // 2

    def __call__(self, seed: int) -> Result:
        mutant = self.mutants(seed)
        seconds, nbytes = self._undamaged(mutant)
        outcome, said, spent, taken = self._measured(mutant.data, mutant.target)
        if outcome in SOUND and spent > seconds + LIMIT_SECONDS:
            outcome = "slow"
        elif outcome in SOUND and taken > nbytes + LIMIT_BYTES:
            outcome = "memory"
        return mutant.result(seed, outcome, said[:500], seconds=round(spent, 3), bytes=taken)

    def _undamaged(self, mutant: Mutant) -> tuple[float, int]:
        """Seconds and bytes of the network; operators take next to nothing."""
        if mutant.source not in self.mutants.networks:
            return 0.0, 0
        key = mutant.source, mutant.target
        if key not in self.sound:
            data = self.mutants.networks[mutant.source]
            _, _, seconds, nbytes = self._measured(data, mutant.target)
            self.sound[key] = seconds, nbytes
        return self.sound[key]

    def _measured(self, data: bytes, target: str) -> tuple[str, str, float, int]:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the high-water mark, to what is now
        before, start = _status("VmRSS"), time.process_time()
        try:
            said = _attempt(data, target)
            outcome = "refused" if said else "ran"
            if "\n" in said:
                outcome = "defect"
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)[::-1]
            where = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in frames)
            outcome, said = "defect", f"{type(error).__name__}: {error} @ {where}"
        return outcome, said, time.process_time() - start, max(0, _status("VmHWM") - before)


def _work(judge: Judge) -> None:
    """Answer seeds on stdin with results on stdout, line by line."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever else prints
    space = _status("VmSize") + SPACE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        print(json.dumps(asdict(judge(int(line)))), file=answers)


class Worker:
    """The process that tries mutants; a new one when the last is gone."""

    def __init__(self, arguments: list[str]) -> None:
        self.command = [sys.executable, __file__, "--worker", *arguments]
        self.process: subprocess.Popen[str] | None = None
        self.tried = 0

    def ask(self, seed: int) -> dict[str, Any] | str:
        """The result of ``seed``; a text if there is none."""
        if self.tried >= MUTANTS_A_PROCESS:
            self.stop()
        if self.process is None:
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(
                self.command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
            )
            self.tried = 0
        self.tried += 1
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(f"{seed}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return self._ended()
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(SILENT_SECONDS):
                self.stop()
                return "hang"
        line = self.process.stdout.readline()
        return json.loads(line) if line else self._ended()

    def _ended(self) -> str:
        assert self.process is not None
        code = self.process.wait()
        self.process = None
        return f"crash {code}"

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


def _results(worker: Worker, mutants: Mutants, first: int, until: float) -> Iterator[Result]:
    seed = first
    while time.monotonic() < until:
        answer = worker.ask(seed)
        if isinstance(answer, str):
            outcome, _, code = answer.partition(" ")
            said = code and f"the process ended with {code}"
            yield mutants(seed).result(seed, outcome, said)
        else:
            yield Result(**answer)
        seed += 1
    worker.stop()


def _read(log: Path) -> list[Result]:
    if not log.exists():
        return []
    return [Result(**json.loads(line)) for line in log.read_text().splitlines()]


def _summary(results: list[Result]) -> list[str]:
    counts = Counter(result.outcome for result in results)
    lines = [f"{len(results)} mutants: " + ", ".join(f"{n} {o}" for o, n in counts.most_common())]
    by_source = Counter("noise" if not r.source else r.mutation for r in results)
    lines.append("by mutation: " + ", ".join(f"{n} {m}" for m, n in by_source.most_common()))
    if results:
        slowest = max(results, key=lambda r: r.seconds)
        largest = max(results, key=lambda r: r.bytes)
        lines.append(f"slowest: seed {slowest.seed}, {slowest.seconds:.1f} s of processor time")
        lines.append(f"most memory: seed {largest.seed}, {largest.bytes / 1e6:.0f} MB")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", type=Path, help="a folder of networks to damage as well")
    parser.add_argument("--minutes", type=float, default=20.0, help="how long (20)")
    parser.add_argument("--first", type=int, help="first seed; as default the log's next")
    parser.add_argument("--log", type=Path, default=ROOT / "build" / "fuzz.jsonl")
    parser.add_argument("--seed", type=int, help="only this one, in this process")
    parser.add_argument("--save", type=Path, help="with --seed: write the mutant here")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    mutants = Mutants(options.models)
    if options.worker:
        _work(Judge(mutants))
        return 0
    if options.seed is not None:
        if options.save:
            options.save.write_bytes(mutants(options.seed).data)
        result = Judge(mutants)(options.seed)
        print(json.dumps(asdict(result), indent=1))
        return result.outcome not in SOUND
    results = _read(options.log)
    first = options.first
    if first is None:
        first = max((result.seed for result in results), default=-1) + 1
    options.log.parent.mkdir(parents=True, exist_ok=True)
    folder = ["--models", str(options.models)] if options.models else []
    until = time.monotonic() + 60 * options.minutes
    with options.log.open("a", buffering=1) as log:
        for result in _results(Worker(folder), mutants, first, until):
            print(json.dumps(asdict(result)), file=log)
            results.append(result)
            if result.outcome not in SOUND:
                print(
                    f"seed {result.seed}: {result.outcome}: {result.mutation} of "
                    f"{result.source} for {result.target}: {result.said}",
                    flush=True,
                )
    print("\n".join(_summary(results)))
    return any(result.outcome not in SOUND for result in results)


if __name__ == "__main__":
    sys.exit(main())
