"""Manual runs, replays, history and payloads."""

import asyncio
import contextlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from astrabox.seams.scheduler import RunInvocation, ScheduledRun, SchedulerProvider
from astrabox.testing.conformance.base import ConformanceBase, of_trigger, schedule
from astrabox.testing.conformance.dispatch import busy
from astrabox.testing.conformance.handler import RecordingHandler, canonical

PAYLOADS: tuple[dict[str, Any], ...] = (
    {},
    {"whole": 1, "float": 1.0, "true": True, "zero": 0, "minus zero": -0.0, "false": False, "none": None},
    {"big": 2**63, "bigger": 10**40, "small": -(2**70), "tiny": 5e-324, "huge": 1.7976931348623157e308},
    {"sum": 0.1 + 0.2, "exponent": 1e22, "int like": 1e16},
    {"z": 1, "a": 2, "m": {"b": [], "a": {}}, "": "empty key", "a.b": 1, "$x": 2, "a/b": 3, "~0": 4},
    {
        "text": "zażółć 定时 🚀 e\u0301 \u2028 \u200f",
        "escapes": '"\\/\b\f\n\r\t',
        "control": "\x00\x01\x1f\x7f",
    },
    {
        "blank": " ",
        "lines": "a\r\nb\n",
        "yaml": "no",
        "number": "1.0",
        "date": "2026-01-01",
        "json": '{"a": 1}',
    },
    {"nested": [[[[[{"deep": [1, [1.0, [True, [None, ["1"]]]]]}]]]]], "mixed": [1, 1.0, "1", True, None, {}]},
    {"long": "prompt " * 20_000},
)


def check_payload(given: Mapping[str, Any], back: Mapping[str, Any], where: str) -> None:
    """Fail unless two payloads are equal, value for value, types and order of keys included."""
    assert canonical(back) == canonical(given), f"the payload has changed {where}: {canonical(back)[:200]}"


class Enqueue(ConformanceBase):
    """Run now, and replay."""

    async def test_enqueue_returns_when_the_record_is_saved(self, store: Any) -> None:
        """It does not wait for the handler."""
        handler = RecordingHandler()
        handler.hold("start_session")
        async with self.running(store, handler) as provider:
            try:
                async with asyncio.timeout(self.settle_timeout):
                    run = await provider.enqueue("a", {"n": 1}, trigger="manual")
            except TimeoutError:
                raise AssertionError("enqueue waits for the handler") from None
            saved = await provider.list_runs("a")
            handler.release()
            (done,) = await self.settled(provider, "a", 1)
        assert [r.run_id for r in saved] == [run.run_id], "enqueue returned before the record was saved"
        assert run.status in ("queued", "running"), f"a new run is {run.status}"
        assert (run.deployment_id, run.trigger, run.scheduled_for) == ("a", "manual", None)
        assert (run.session_id, run.turn_id, run.error, run.replayed_from_run_id) == (None, None, None, None)
        check_payload({"n": 1}, run.payload, "in what enqueue returns")
        assert run.created_at.utcoffset() == timedelta(0), "created_at is not an aware UTC datetime"
        assert (done.run_id, done.status, done.scheduled_for) == (run.run_id, "completed", None)
        call = handler.calls[0].invocation
        assert (call.trigger, call.scheduled_for, call.replayed_from_run_id) == ("manual", None, None)

    async def test_every_enqueue_is_a_run(self, store: Any) -> None:
        """Also several at once, with the same payload."""
        async with self.running(store, RecordingHandler()) as provider:
            made = await asyncio.gather(*(provider.enqueue("a", {}, trigger="manual") for _ in range(5)))
            runs = await self.settled(provider, "a", 5)
        assert {run.run_id for run in made} == {run.run_id for run in runs}
        assert len({run.run_id for run in runs}) == len(made), "two manual runs share an id"

    async def test_enqueue_changes_no_time_rule(self, store: Any) -> None:
        """It works without a rule and beside a disabled one, and leaves the rule's payload alone."""
        (window,) = self.windows(store, 1)
        async with self.running(store, RecordingHandler()) as provider:
            await provider.apply(schedule("on"))
            await provider.apply(schedule("off", enabled=False))
            for name in ("on", "off", "without"):
                await self.marker(provider, name)
                await self.fire(provider, name, window)
                await self.marker(provider, name)
            fired = {n: of_trigger(await provider.list_runs(n), "schedule") for n in ("on", "off", "without")}
        counts = {name: len(runs) for name, runs in fired.items()}
        assert counts == {"on": 1, "off": 0, "without": 0}, f"enqueue has changed a time rule: {counts}"
        check_payload({"prompt": "of on"}, fired["on"][0].payload, "by a manual run")

    async def test_replay_hands_back_the_payload_of_its_source(self, store: Any) -> None:
        """Also after the Schedule has been edited, and for the replay of a replay."""
        handler, old = RecordingHandler(), {"prompt": "old", "n": 1.0}
        async with self.running(store, handler) as provider:
            await provider.apply(schedule("a", payload=old))
            await self.fire(provider, "a", self.windows(store, 1)[0])
            (source,) = await self.settled(provider, "a", 1)
            await provider.apply(schedule("a", payload={"prompt": "new"}))
            for count in (2, 3):
                replay = await provider.enqueue(
                    "a", source.payload, trigger="replay", replayed_from_run_id=source.run_id
                )
                check_payload(old, replay.payload, "in a replay")
                done = (await self.settled(provider, "a", count))[0]
                assert done.run_id == replay.run_id != source.run_id, "a replay needs a run id of its own"
                assert (done.trigger, done.scheduled_for) == ("replay", None)
                assert done.replayed_from_run_id == source.run_id, "the replay's source is not in the ledger"
                check_payload(old, done.payload, "in a replay's record")
                call = handler.calls[-1]
                assert call.invocation.replayed_from_run_id == source.run_id, "the handler gets no source"
                assert (call.invocation.trigger, call.invocation.scheduled_for) == ("replay", None)
                assert call.payload_text == canonical(old), "the handler gets another payload in a replay"
                source = done


class History(ConformanceBase):
    """``list_runs``."""

    async def test_history_is_newest_first_over_all_triggers(self, store: Any) -> None:
        """In the order in which the runs were made; other Deployments' runs are not among them."""
        windows, made = self.windows(store, 2), list[str]()
        async with self.running(store, RecordingHandler()) as provider:
            await provider.apply(schedule("a"))
            for window in windows:
                await self.fire(provider, "a", window)
                await self._add(provider, made)
                await provider.enqueue("a", {}, trigger="manual")
                await self._add(provider, made)
                source = made[-1]
                await provider.enqueue("a", {}, trigger="replay", replayed_from_run_id=source)
                await self._add(provider, made)
                await provider.enqueue("A", {}, trigger="manual")
            runs = await provider.list_runs("a")
            assert [run.run_id for run in runs] == made[::-1], "not newest first"
            assert [run.trigger for run in runs] == ["replay", "manual", "schedule"] * 2
            times = [run.created_at for run in runs]
            assert times == sorted(times, reverse=True), "created_at does not follow the order"
            for limit, expected in ((2, 2), (1, 1), (0, 1), (-5, 1), (6, 6), (1000, 6)):
                part = [run.run_id for run in await provider.list_runs("a", limit=limit)]
                assert part == made[::-1][:expected], f"limit={limit} gives {len(part)} runs"
            assert await provider.list_runs("unknown") == []

    async def _add(self, provider: SchedulerProvider, made: list[str]) -> None:
        runs = await self.settled(provider, "a", len(made) + 1)
        made.extend({run.run_id for run in runs}.difference(made))
        await asyncio.sleep(self.created_at_resolution)

    async def test_limit_is_fifty_by_default_and_two_hundred_at_most(self, store: Any) -> None:
        """However many runs there are."""
        async with self.running(store, RecordingHandler()) as provider:
            for _ in range(7):
                await asyncio.gather(*(provider.enqueue("a", {}, trigger="manual") for _ in range(29)))
            sizes = [
                len(runs)
                for runs in (
                    await provider.list_runs("a"),
                    await provider.list_runs("a", limit=200),
                    await provider.list_runs("a", limit=201),
                )
            ]
            assert sizes == [50, 200, 200], f"of 203 runs, limits 50, 200 and 201 give {sizes}"
            await self.settled(provider, "a", 200)


class Payloads(ConformanceBase):
    """The payload is opaque, and stays what it was."""

    async def test_payload_is_handed_back_value_for_value(self, store: Any) -> None:
        """By both calls, and by the ledger, for scheduled and manual runs."""
        (window,), handler = self.windows(store, 1), RecordingHandler()
        rules = [schedule(f"p{n}", payload=payload) for n, payload in enumerate(PAYLOADS)]
        async with self.running(store, handler, rules) as provider:
            for rule in rules:
                await self.fire(provider, rule.deployment_id, window)
                await provider.enqueue(rule.deployment_id, rule.payload, trigger="manual")
                for run in await self.settled(provider, rule.deployment_id, 2):
                    check_payload(rule.payload, run.payload, f"in the ledger ({run.trigger})")
                    calls = [c for c in handler.calls if c.invocation.run_id == run.run_id]
                    assert len(calls) == 2  # noqa: PLR2004 - one of each method
                    for call in calls:
                        check_payload(rule.payload, call.invocation.payload, f"in {call.method}")

    async def test_later_changes_by_caller_or_handler_do_not_reach_the_record(self, store: Any) -> None:
        """What the provider keeps is a copy, and what it hands out is one."""
        given: dict[str, Any] = {"deep": {"list": [1, 2]}}
        before, handler = canonical(given), RecordingHandler()

        def spoil(payload: Mapping[str, Any]) -> None:
            with contextlib.suppress(TypeError, AttributeError):
                payload["deep"]["list"].append("spoilt")
                payload["extra"] = "spoilt"  # type: ignore[index]

        async def spoil_invocation(invocation: RunInvocation) -> None:
            spoil(invocation.payload)

        handler.on("start_session", spoil_invocation)
        async with self.running(store, handler) as provider:
            await provider.apply(schedule("a", payload=given))
            manual = await provider.enqueue("a", given, trigger="manual")
            spoil(given)
            spoil(manual.payload)
            await self.fire(provider, "a", self.windows(store, 1)[0])
            for run in await self.settled(provider, "a", 2):
                spoil(run.payload)
            runs = await provider.list_runs("a")
        assert {call.payload_text for call in handler.calls} == {before}, "a change has reached a later call"
        assert {canonical(run.payload) for run in runs} == {before}, "a change has reached the ledger"

    async def test_edit_rewrites_no_run_that_exists(self, store: Any) -> None:
        """Neither one that has ended, nor one that is held or waits for a retry."""
        handler, windows = RecordingHandler(), self.windows(store, 3)
        async with self.running(store, handler) as provider:
            await provider.apply(schedule("a", payload={"v": 1}))
            await self.fire(provider, "a", windows[0])
            await self.settled(provider, "a", 1)
            handler.hold("start_session")
            handler.fail("start_session", busy)
            await self.fire(provider, "a", windows[1])
            await handler.seen("start_session", 2, self.settle_timeout)
            await provider.apply(schedule("a", payload={"v": 2}))
            handler.release()
            await self.settled(provider, "a", 2)
            await self.fire(provider, "a", windows[2])
            runs: list[ScheduledRun] = await self.settled(provider, "a", 3)
        assert [run.payload["v"] for run in runs] == [2, 1, 1], "an edit has rewritten runs, or has no effect"
        for run, value in zip(runs, (2, 1, 1), strict=True):
            texts = {c.payload_text for c in handler.calls if c.invocation.run_id == run.run_id}
            assert texts == {canonical({"v": value})}, "an edit has changed what the handler gets"
