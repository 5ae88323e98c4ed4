"""Who was there when, and when a role was in such order that something can be asked of it.

*Able*: a process that has started, was not asked to end, and is neither frozen nor hindered nor blocked.
*Calm*: a stretch in which one process of a role is able and no other of that role changes. Who has taken
a share keeps it until its Lease has run out, so whatever the others are (able, gone, frozen) they must be
for the whole stretch; one that starts, ends, is hindered or frozen in between begins the count anew.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import inf

from tests.faults.history.facts import Call, History, Life, Role, Span
from tests.faults.history.objects import field
from tests.faults.history.slack import Slack
from tests.faults.history.spans import covers, meets, split, subtract, union


class Attendance:
    """The processes of a history."""

    def __init__(self, history: History, slack: Slack) -> None:
        self._history = history
        self._slack = slack
        self._bounds = history.bounds
        self.outages = union((outage.begun, outage.ended) for outage in history.outages)
        self._by_pid: defaultdict[tuple[str, int], list[Life]] = defaultdict(list)
        for life in history.lives:
            self._by_pid[life.name, life.pid].append(life)
        self._blocked: defaultdict[int, list[Span]] = defaultdict(list)
        self._busy = self._find_busy_and_blocked()
        self._able = {id(life): self._able_spans(life) for life in history.lives}
        self._calm: dict[Role, list[Span]] = {}

    def lives(self, role: Role) -> list[Life]:
        """All lives of a role."""
        return [life for life in self._history.lives if life.role == role]

    def end(self, life: Life) -> float:
        """When it ended; the end of the history for one that was there then."""
        return self._history.ended if life.ended is None else life.ended

    def life_of(self, call: Call) -> Life | None:
        """The life that made this call."""
        found = [life for life in self._by_pid.get((call.host, call.pid), ()) if life.begun <= call.begun]
        return max(found, key=lambda life: life.begun, default=None)

    def life_at(self, name: str, when: float) -> Life | None:
        """The latest life of that name that had begun by then."""
        found = [life for life in self._history.lives if life.name == name and life.begun <= when]
        return max(found, key=lambda life: life.begun, default=None)

    def call_end(self, call: Call) -> float:
        """When the call was over: for one that nobody saw the end of, when its process was."""
        if call.ended is not None:
            return call.ended
        life = self.life_of(call)
        return self._history.ended if life is None else self.end(life)

    def able(self, life: Life) -> Sequence[Span]:
        """When it surely could work, faults of everybody left aside."""
        return self._able[id(life)]

    def disturbances(self, life: Life) -> list[Span]:
        """When it was frozen, hindered or blocked."""
        return [*life.frozen, *life.hindered, *self._blocked[id(life)]]

    def disturbed(self, life: Life | None, begin: float, end: float) -> bool:
        """Whether anything kept this process, or everybody, from working at a moment of [begin, end]."""
        if life is None:
            return True
        return meets([*self.disturbances(life), *self.outages], begin, end)

    def thawed(self, life: Life | None, when: float) -> bool:
        """Whether SIGCONT came a moment before: what began then rests on a check made before SIGSTOP."""
        stops = () if life is None else [*life.frozen, *self._blocked[id(life)]]
        return any(thaw <= when <= thaw + self._slack.thaw for _, thaw in stops)

    def possible_host(self, due: float) -> bool:
        """Whether any host process may have been there, begun and not ended, as far as clocks tell."""
        clock = self._slack.clock
        return any(life.begun - clock <= due <= self.end(life) + clock for life in self.lives("host"))

    def shown(self, due: float) -> float | None:
        """By when some host that was there at `due` has surely shown it by a later renewal of its Lease.

        One that is killed within a renew period of the due time is not known to have been there at it.
        While the API server is away, or is out of a host's reach, the host cannot renew: the proof comes
        after that.
        """
        shown = (self._shown(life, due) for life in self.lives("host"))
        return min((when for when in shown if when is not None), default=None)

    def certain_host(self, due: float) -> bool:
        """Whether some host was surely there, and has shown it."""
        return self.shown(due) is not None

    def visible_host(self, begin: float, end: float) -> bool:
        """Whether one host was there for all of this time."""
        return any(covers(self.able(life), begin, end) for life in self.lives("host"))

    def calm(self, role: Role) -> list[Span]:
        """The calm stretches of a role, see above; a fault counts for as long as it takes to recover from."""
        if role not in self._calm:
            self._calm[role] = self._find_calm(role)
        return self._calm[role]

    def _shown(self, life: Life, due: float) -> float | None:
        proof = self._bounds.renew_period + self._slack.proof
        shown = due + proof
        hindered = ((begin, end + self._slack.recovery) for begin, end in life.hindered)
        for begin, end in sorted([*self.outages, *hindered]):
            if begin < shown and end > shown - proof:
                shown = end + proof
        for begin, end in self._awake(life):
            since = due - self._slack.clock if begin == life.ready else due - proof
            if begin <= since and end >= shown:
                return shown
        return None

    def _awake(self, life: Life) -> list[Span]:
        """When it was at work, be it cut off from the API server or not."""
        if life.ready is None:
            return []
        end = min(self.end(life), inf if life.asked_to_end is None else life.asked_to_end)
        return subtract([(life.ready, end)], [*life.frozen, *self._blocked[id(life)]])

    def _able_spans(self, life: Life) -> list[Span]:
        return subtract(self._awake(life), life.hindered)

    def _find_calm(self, role: Role) -> list[Span]:
        lives = self.lives(role)
        able = union(span for life in lives for span in self._able[id(life)])
        bad = [self._padded(span, role) for span in self.outages]
        cuts: list[float] = []
        for life in lives:
            end = self.end(life)
            bad.append((life.begun, end if life.ready is None else life.ready))
            bad += [self._padded(span, role) for span in (*life.hindered, *self._blocked[id(life)])]
            if life.asked_to_end is not None:
                bad.append((life.asked_to_end, end))
            for begin, thaw in life.frozen:
                bad.append((thaw, self._padded((begin, thaw), role)[1]))
                cuts.append(begin)
            cuts += [life.begun, end]
        if role == "host":
            bad += self._busy
        return split(subtract(able, bad), cuts)

    def _padded(self, span: Span, role: Role) -> Span:
        """A fault with the time that it takes to be over it.

        An operator pauses longer the longer its creates have failed, and a host up to five seconds.
        """
        begin, end = span
        slack = self._slack
        if role == "host":
            return begin, end + slack.recovery
        pause = min(slack.longest_pause, end - begin + slack.late)
        return begin, end + max(slack.recovery, slack.request_timeout + pause)

    def _find_busy_and_blocked(self) -> list[Span]:
        """Blocked loops by the payload that asks for it; and hosts without a free place for a run."""
        changes: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
        for call in self._history.calls:
            life = self.life_of(call)
            if life is None:
                continue
            end = self.call_end(call)
            if _blocks(call):
                self._blocked[id(life)].append((call.begun, end))
            changes[id(life)] += [(call.begun, 1), (end, -1)]
        return union(span for each in changes.values() for span in _full(each, self._slack.concurrency))


def _blocks(call: Call) -> bool:
    wanted = field(call.payload, "behaviour")
    host = field(wanted, "host")
    return host in (None, call.host) and str(field(wanted, call.step)).startswith("block")


def _full(changes: Iterable[tuple[float, int]], places: int) -> Iterable[Span]:
    running, since = Counter[str](), None
    for when, change in sorted(changes):
        running["now"] += change
        if running["now"] >= places and since is None:
            since = when
        elif running["now"] < places and since is not None:
            yield since, when
            since = None
