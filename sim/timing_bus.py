"""The memory as the timing model sees it: two directions, in order, that share one bandwidth."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count

#: From an address taken to its first beat, beside the memory's latency.
BUS_LATENCY = 0
#: What a burst takes beside the memory's latency until another may be issued in its place.
ROUND_TRIP = 6
#: Bursts outstanding at a time.
READS, WRITES = 64, 16


@dataclass(frozen=True)
class Segment:
    """A piece of one direction's traffic: an instruction's beats, or a fetched instruction.

    Members:
        owner: the instruction, in program order.
        beats, bursts: what moves; fractions after a split.
        issue, due: when its first address is on the bus, when its first beat may move.
        pads: cycles of padding in between, in which no beat is taken.
        gaps: runs of padding that interrupt the beats.
        lead: those of ``pads`` that come before the first beat.
        fetch: whether it fetches ``owner`` instead of being moved by it.
        last: whether the owner's beats end with it.
    """

    owner: int
    beats: float
    bursts: float
    issue: float
    due: float
    pads: float = 0
    gaps: float = 0
    lead: float = 0
    fetch: bool = False
    last: bool = True

    def part(self, low: float, high: float) -> "Segment":
        """The share of the segment from ``low`` to ``high``, of 0 to 1."""
        share = high - low
        return replace(
            self,
            beats=self.beats * share,
            bursts=self.bursts * share,
            pads=self.pads * share,
            gaps=self.gaps * share,
            lead=self.lead if low == 0 else 0,
            last=self.last and high == 1,
        )


@dataclass
class Stream:
    """One direction: segments in order, the first of them in progress if ``active``."""

    #: Bursts the core keeps outstanding.
    limit: int
    #: Called with the time and the version at which something is due.
    due: Callable[[float, int], None]
    end: Callable[[float, int], None]
    segments: deque[Segment] = field(default_factory=deque)
    active: bool = False
    #: The first segment: what is left of it, since when, and how long all of it would take.
    left: float = 1.0
    since: float = 0.0
    duration: float = 1.0
    #: Tells the plan in force from those a change has overtaken.
    version: int = 0
    #: When the last segment ended.
    free: float = 0.0


class Bus:
    """Shares ``bandwidth`` beats a cycle between reads and writes, and keeps each in order.

    ``due`` and ``end`` ask the caller to call :meth:`advance` and :meth:`finish` at a time.
    """

    def __init__(
        self,
        bandwidth: float,
        latency: int,
        plan: Callable[[float, str, int], None],
    ) -> None:
        self.bandwidth = bandwidth
        self.latency = latency
        self.reads = self._stream(READS, "read", plan)
        self.writes = self._stream(WRITES, "write", plan)
        self._versions = count(1)

    @staticmethod
    def _stream(limit: int, name: str, plan: Callable[[float, str, int], None]) -> Stream:
        return Stream(
            limit,
            lambda time, version: plan(time, f"{name}_due", version),
            lambda time, version: plan(time, f"{name}_end", version),
        )

    def push(self, stream: Stream, now: float, segment: Segment) -> None:
        """Queue a segment."""
        stream.segments.append(segment)
        self._wake(stream, now)

    def push_fetch(self, now: float, first: int, size: int, beats: int) -> None:
        """Queue a burst of ``size`` instructions behind the bursts that are on the bus already."""
        due = now + self.latency + BUS_LATENCY
        segments = self.reads.segments
        room = float(READS)
        place = len(segments)
        for position, other in enumerate(segments):
            share = self._remaining(now) if position == 0 and self.reads.active else 1.0
            bursts = other.bursts * share
            issued = max(min(room, now - other.issue), 0.0)
            if other.fetch or bursts <= issued:
                room -= bursts
                continue
            place = position
            if issued > 0:
                self._split(now, position, issued / bursts * share)
                place += 1
            break
        for k in range(size):
            segments.insert(place + k, Segment(first + k, beats, 1 / size, now, due, fetch=True))
        self._wake(self.reads, now)

    def advance(self, stream: Stream, now: float) -> None:
        """Begin the first segment if it is due and the direction is free."""
        if stream.active or not stream.segments:
            return
        if stream.segments[0].due > now:
            self._wake(stream, now)
            return
        self._begin(stream, now)
        self._change(self._other(stream), now)

    def finish(self, stream: Stream, now: float, version: int) -> Segment | None:
        """End the first segment, if that is still the plan, and begin the next."""
        if not stream.active or version != stream.version:
            return None
        segment = stream.segments.popleft()
        stream.active, stream.free = False, now
        if stream.segments and stream.segments[0].due <= now:
            self._begin(stream, now)
        else:
            self._change(self._other(stream), now)
            self._wake(stream, now)
        return segment

    def _other(self, stream: Stream) -> Stream:
        return self.writes if stream is self.reads else self.reads

    def _wake(self, stream: Stream, now: float) -> None:
        if not stream.active and stream.segments:
            stream.due(max(now, stream.segments[0].due), 0)

    def _begin(self, stream: Stream, now: float) -> None:
        stream.active = True
        stream.left, stream.since = 1.0, now
        segment = stream.segments[0]
        # Leading padding is written while the first data are awaited.
        early = min(segment.lead, max(now - max(stream.free, segment.issue), 0.0))
        if early:
            stream.segments[0] = replace(segment, pads=segment.pads - early)
        self._replan(stream, now)

    def _replan(self, stream: Stream, now: float) -> None:
        """Plan the end of the first segment at its present rate."""
        stream.duration = self._duration(stream)
        stream.version = next(self._versions)
        stream.end(now + stream.left * stream.duration, stream.version)

    def _change(self, stream: Stream, now: float) -> None:
        """The other direction began or ended: from here on the rate is another one."""
        if stream.active:
            elapsed = (now - stream.since) / max(stream.duration, 1e-9)
            stream.left, stream.since = max(stream.left - elapsed, 0.0), now
            self._replan(stream, now)

    def _duration(self, stream: Stream) -> float:
        """How long all of the first segment takes at the present share of the bus."""
        segment = stream.segments[0]
        other = self._other(stream)
        share = self.bandwidth
        if other.active:
            # They alternate, and while the other direction writes padding the bus is free.
            half = self.bandwidth / 2
            rival = other.segments[0]
            idle = max(rival.pads - rival.gaps * max(1 / half - 1, 0), 0)
            share = half + half * idle / max(rival.beats / half + idle, 1e-9)
        share = min(1.0, share)
        # No beat is taken during padding, but the wait for the next one goes on.
        hidden = min(segment.gaps * max(1 / share - 1, 0), segment.pads)
        time = segment.beats / share + segment.pads - hidden
        # Short bursts: what can be outstanding does not cover the memory's latency.
        beyond = segment.bursts - stream.limit
        if beyond > 0:
            per_burst = (self.latency + BUS_LATENCY + ROUND_TRIP) / stream.limit
            time += beyond * max(per_burst - segment.beats / segment.bursts / share, 0.0)
        return time

    def _remaining(self, now: float) -> float:
        """What is left of the first read segment."""
        reads = self.reads
        return max(reads.left - (now - reads.since) / max(reads.duration, 1e-9), 0.0)

    def _split(self, now: float, position: int, share: float) -> None:
        """Cut a read segment in two, ``share`` of the whole from here on going first."""
        reads = self.reads
        whole = reads.segments[position]
        running = position == 0 and reads.active
        done = 1.0 - self._remaining(now) if running else 0.0
        cut = done + share
        reads.segments[position] = whole.part(0, cut)
        reads.segments.insert(position + 1, whole.part(cut, 1))
        if running:
            reads.left, reads.since = share / cut, now
            self._replan(reads, now)
