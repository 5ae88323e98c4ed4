"""Makes small histories as a correct program leaves them, to change one fact and see what is said of it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.faults.history.check import check
from tests.faults.history.facts import (
    Bounds,
    Call,
    Command,
    History,
    Life,
    Outage,
    Role,
    Violation,
    Write,
)
from tests.unit.history.store import iso, objects_of, whole

T0 = 1_800_000_000.0
"""A full hour."""
MINUTE = 60.0
STATUS = {"Queued": "queued", "Succeeded": "completed", "Failed": "failed", "Cancelled": "cancelled"}


def t(seconds: float) -> float:
    return T0 + seconds


@dataclass
class Story:
    """All times are seconds since T0; the objects at the end follow from the writes."""

    lives: list[Life] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    ended: float = 895.0
    bounds: Bounds = field(default_factory=Bounds)
    attempts: Counter[str] = field(default_factory=Counter)
    payloads: dict[str, Any] = field(default_factory=dict)
    specs: dict[str, dict[str, Any]] = field(default_factory=dict)
    touch_runs: list[Callable[[dict[str, Any]], object]] = field(default_factory=list)
    touch_ledgers: list[Callable[[list[dict[str, Any]]], object]] = field(default_factory=list)

    def life(self, name: str, role: Role, pid: int, begun: float, ready: float | None) -> None:
        self.lives.append(Life(name, role, pid, t(begun), None if ready is None else t(ready)))

    def change_life(self, pid: int, **fields: Any) -> None:
        for name, value in fields.items():
            if name in ("begun", "ready", "ended", "asked_to_end"):
                fields[name] = None if value is None else t(value)
            elif name in ("frozen", "hindered"):
                fields[name] = tuple((t(begin), t(end)) for begin, end in value)
        self.lives = [replace(life, **fields) if life.pid == pid else life for life in self.lives]

    def write(self, at: float, by: str, verb: str, name: str, **fields: Any) -> Write:
        code = fields.pop("code", 201 if verb == "create" else 200)
        meta = {
            "name": name,
            "uid": fields.pop("uid", f"uid-{name}"),
            "resourceVersion": str(int(at * 1000) + 1),
        }
        succeeded = code is not None and code < 300
        sent = fields.pop("sent", None)
        told = {**(sent or {}).get("metadata", {}), **meta}
        one = Write(
            received=t(at),
            completed=None if code is None else t(at + 0.02),
            code=code,
            by=by,
            verb=verb,
            resource=fields.pop("resource", "runinvocations"),
            name=name,
            after={**(sent or {}), "metadata": told} if verb != "delete" and succeeded else None,
            **fields,
        )
        self.writes.append(one)
        return one

    def apply(self, at: float, host: str, deployment: str, **changes: Any) -> None:
        """A command and its write; what is not given stays."""
        spec = self.specs.get(deployment)
        rule = {
            "deployment_id": deployment,
            "cron": "* * * * *",
            "timezone": "UTC",
            "enabled": True,
            "payload": self.payloads.get(deployment, {"prompt": "hello", "n": 1.0}),
        }
        if spec is not None:
            rule |= {"cron": spec["cron"], "timezone": spec["timeZone"], "enabled": spec["enabled"]}
        rule |= changes
        self.payloads[deployment] = rule["payload"]
        self.commands.append(
            Command(host, "apply", t(at), t(at + 0.1), deployment_id=deployment, schedule=rule)
        )
        self.store(at + 0.03, host, deployment, rule)

    def store(self, at: float, by: str, deployment: str, rule: Mapping[str, Any]) -> None:
        """The write of a schedule alone."""
        spec = self.specs.get(deployment)
        same = spec is not None and (spec["cron"], spec["enabled"]) == (rule["cron"], rule["enabled"])
        new = {
            "deploymentId": deployment,
            "cron": rule["cron"],
            "timeZone": rule["timezone"],
            "enabled": rule["enabled"],
            "payload": json.dumps(rule["payload"], separators=(",", ":")),
            "activeSince": spec["activeSince"] if same and spec is not None else iso(t(at - 0.01)),
        }
        self.specs[deployment] = new
        verb = "create" if spec is None else "update"
        self.write(at, by, verb, deployment, resource="deploymentschedules", sent={"spec": new})

    def delete(self, at: float, host: str, deployment: str) -> None:
        self.commands.append(Command(host, "delete", t(at), t(at + 0.1), deployment_id=deployment))
        self.write(at + 0.03, host, "delete", deployment, resource="deploymentschedules")
        self.specs.pop(deployment, None)

    def skip(
        self, deployment: str, at: float, due: float, reason: str, *, count: int = 1, by: str = "op-1"
    ) -> None:
        """The schedule's status tells of a due time without a run."""
        told = {"count": count, "lastDueTime": iso(t(due)), "reason": reason}
        sent = {"status": {"skipped": told}}
        self.write(
            at, by, "patch", deployment, resource="deploymentschedules", subresource="status", sent=sent
        )

    def reconcile(self, at: float, host: str, *given: Mapping[str, Any], took: float = 1.0) -> None:
        """A command with these schedules, each with its deployment_id; no write."""
        self.commands.append(Command(host, "reconcile", t(at), t(at + took), given=given))

    def create(self, deployment: str, due: float, at: float | None = None, **fields: Any) -> str:
        """A scheduled run."""
        name = str(fields.pop("name", f"{deployment}-{due:g}"))
        spec = {
            "deploymentId": deployment,
            "trigger": "schedule",
            "dueTime": iso(t(due)),
            "payload": json.dumps(fields.pop("payload", self.payloads[deployment])),
        }
        by = fields.pop("by", "op-1")
        self.write(due + 0.2 if at is None else at, by, "create", name, sent={"spec": spec}, **fields)
        return name

    def save(self, run: str, host: str, at: float, **status: Any) -> None:
        self.write(at, host, "patch", run, subresource="status", sent={"status": status})

    def claim(self, run: str, host: str, at: float) -> None:
        self.attempts[run] += 1
        self.save(run, host, at, phase="Running", attempts=self.attempts[run], nextAttemptTime=None)

    def fail(self, run: str, host: str, at: float, again: float) -> None:
        self.save(
            run, host, at, phase="Retrying", nextAttemptTime=iso(t(again)), lastError="StagedFailureError"
        )

    def call(
        self, run: str, host: tuple[str, int], step: str, begun: float, ended: float | None, **fields: Any
    ) -> None:
        spec = next(
            write.after["spec"]
            for write in self.writes
            if write.name == run and write.verb == "create" and write.after
        )
        result = f"sess-{run}" if step == "start_session" else f"turn-{run}"
        told: dict[str, Any] = {
            "host": host[0],
            "pid": host[1],
            "step": step,
            "run_id": run,
            "deployment_id": spec["deploymentId"],
            "trigger": spec["trigger"],
            "scheduled_for": spec.get("dueTime"),
            "replayed_from": spec.get("replayedFrom"),
            "session_id": f"sess-{run}" if step == "admit_turn" else None,
            "payload": json.loads(spec["payload"]),
            "begun": t(begun),
            "ended": None if ended is None else t(ended),
            "result": result if ended is not None and "error" not in fields else None,
        }
        self.calls.append(Call(**(told | fields)))

    def dispatch(self, run: str, host: tuple[str, int], at: float) -> None:
        """One attempt that succeeds within a second."""
        name = host[0]
        self.claim(run, name, at)
        if not self.saved(run):
            self.call(run, host, "start_session", at + 0.1, at + 0.3)
            self.save(run, name, at + 0.35, sessionId=f"sess-{run}")
        self.admit(run, host, at + 0.4)

    def admit(self, run: str, host: tuple[str, int], at: float) -> None:
        self.call(run, host, "admit_turn", at, at + 0.2)
        self.save(run, host[0], at + 0.25, phase="Succeeded", turnId=f"turn-{run}")

    def saved(self, run: str) -> bool:
        return any(
            write.name == run and "sessionId" in (write.after or {}).get("status", {})
            for write in self.writes
        )

    def enqueue(self, at: float, host: tuple[str, int], deployment: str, run: str, **fields: Any) -> None:
        source = fields.get("replayed_from")
        trigger = "manual" if source is None else "replay"
        payload = fields.pop("payload", {"asked": run})
        told = next((w.after["spec"]["payload"] for w in self.writes if w.name == source and w.after), None)
        spec = {"deploymentId": deployment, "trigger": trigger, "payload": told or json.dumps(payload)}
        spec |= {} if source is None else {"replayedFrom": source}
        self.commands.append(
            Command(
                host[0],
                "enqueue",
                t(at),
                t(at + 0.1),
                deployment_id=deployment,
                payload=payload,
                trigger=trigger,
                run_id=run,
                **fields,
            )
        )
        self.write(at + 0.03, host[0], "create", run, sent={"spec": spec})
        self.dispatch(run, host, at + 0.2)

    def change(self, kind: str, test: Callable[[Any], bool], **fields: Any) -> None:
        """Change fields of what passes the test; one at least."""
        before = getattr(self, kind)
        assert any(test(each) for each in before)
        setattr(self, kind, [replace(each, **fields) if test(each) else each for each in before])

    def drop(self, kind: str, test: Callable[[Any], bool]) -> None:
        """Leave out what passes the test; one at least."""
        before = getattr(self, kind)
        after = [each for each in before if not test(each)]
        assert len(after) < len(before)
        setattr(self, kind, after)

    def forget(self, run: str) -> None:
        """As if there never had been such a run."""
        self.drop("writes", lambda write: write.name == run)
        self.calls = [call for call in self.calls if call.run_id != run]
        self.attempts.pop(run, None)

    def history(self) -> History:
        writes = whole(self.writes)
        runs = objects_of(writes, "runinvocations")
        for touch in self.touch_runs:
            touch(runs)
        ledgers = {"b": self._ledger(runs)}
        for rows in ledgers["b"].values():
            for change in self.touch_ledgers:
                change(rows)
        return History(
            begun=T0,
            ended=t(self.ended),
            lives=self.lives,
            commands=self.commands,
            calls=self.calls,
            writes=writes,
            runs=runs,
            schedules=objects_of(writes, "deploymentschedules"),
            outages=self.outages,
            ledgers=ledgers,
            bounds=self.bounds,
        )

    def _ledger(self, runs: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
        rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for name, run in runs.items():
            spec, status = run["spec"], run["status"]
            shown = STATUS.get(status["phase"], "running")
            rows[spec["deploymentId"]].append(
                {
                    "run_id": name,
                    "deployment_id": spec["deploymentId"],
                    "trigger": spec["trigger"],
                    "status": shown,
                    "scheduled_for": spec.get("dueTime"),
                    "payload": json.loads(spec["payload"]),
                    "session_id": status.get("sessionId"),
                    "turn_id": status.get("turnId"),
                    "error": None if shown in ("queued", "completed") else status.get("lastError"),
                    "created_at": run["metadata"]["creationTimestamp"],
                    "replayed_from_run_id": spec.get("replayedFrom"),
                }
            )
        return {
            key: sorted(each, key=lambda row: str(row["created_at"]), reverse=True)
            for key, each in rows.items()
        }


A, B, A2 = ("a", 101), ("b", 102), ("a", 103)


def a_good_day() -> Story:
    """Two operators, two hosts; a kill with its takeover, a failure, an edit, a pause, a replay, a delete."""
    story = Story()
    story.life("op-1", "operator", 201, 0, 2)
    story.life("op-2", "operator", 202, 0, 2)
    story.life("a", "host", 101, 1, 4)
    story.life("b", "host", 102, 1, 5)
    story.life("a", "host", 103, 330, 334)
    story.apply(20, "a", "every")
    story.apply(21, "b", "half", cron="*/2 * * * *", payload={"half": [1, 1.0, True]})
    for due in (60, 120, 240, 360, 420, 480):
        story.dispatch(story.create("every", due), B, due + 0.3)
    for due in (120, 240, 360):
        story.dispatch(story.create("half", due), B, due + 1.3)
    fails_once(story, story.create("every", 180))
    story.enqueue(200, A, "every", "by-hand")
    story.enqueue(250, A, "every", "again", replayed_from="by-hand")
    killed_in_call(story, story.create("every", 300))
    story.apply(400, "b", "half", payload={"half": 2})
    story.dispatch(story.create("half", 480), A2, 481.3)
    story.apply(500, "b", "every", enabled=False)
    for due in (600, 720):
        story.dispatch(story.create("half", due), A2, due + 1.3)
    story.apply(700, "a", "every", enabled=True)
    for due in (720, 780, 840):
        story.dispatch(story.create("every", due), B, due + 0.3)
    story.delete(800, "a", "half")
    return story


def without(run: str) -> Story:
    """The same, with nothing left of one run."""
    story = a_good_day()
    story.forget(run)
    return story


def fails_once(story: Story, run: str) -> None:
    story.claim(run, "a", 180.3)
    story.call(run, A, "start_session", 180.4, 180.5, error="StagedFailureError: start_session fails 1 times")
    story.fail(run, "a", 180.6, 182.6)
    story.dispatch(run, A, 182.7)


def killed_in_call(story: Story, run: str) -> None:
    """Host a is killed in start_session; b takes the run over when its Lease has run out."""
    story.claim(run, "a", 300.3)
    story.call(run, A, "start_session", 300.4, None)
    story.change_life(101, ended=300.5, code=-9)
    labels = {"scheduler.astrabox.io/assignee": "b"}
    story.write(316, "b", "patch", run, sent={"metadata": {"labels": labels}})
    story.dispatch(run, B, 316.1)


def of(run: str, step: str) -> Callable[[Call], bool]:
    return lambda call: call.run_id == run and call.step == step


def by_name(name: str, verb: str = "", **status: Any) -> Callable[[Write], bool]:
    """Writes of that object; with status fields those that set them."""

    def test(write: Write) -> bool:
        said = (write.after or {}).get("status", {})
        return write.name == name and verb in ("", write.verb) and status.items() <= said.items()

    return test


def found(story: Story) -> list[Violation]:
    return check(story.history())


def expect(story: Story, guarantee: str, subject: str, words: str = "") -> None:
    """Exactly one violation: of this guarantee, by this run or Deployment, saying these words."""
    seen = found(story)
    assert [(each.guarantee, each.run_id or each.deployment_id) for each in seen] == [(guarantee, subject)], (
        seen
    )
    assert words in seen[0].what


def permitted(story: Story) -> None:
    assert found(story) == []
