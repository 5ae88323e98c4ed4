"""What keeps a run from being lost or doubled on its way through processes that end."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import CRDS, PROVIDER, Mutation

_FAULTS: Final = "tests/faults/dispatch"
_STORE: Final = "tests/faults/store"
_APISERVER: Final = "tests/apiserver/provider"
_UNIT: Final = "tests/unit/provider"
_STOP: Final = f"{_FAULTS}/test_stop.py::test_stop_under_load_is_bounded_and_hands_everything_over"
_POISON: Final = f"{_FAULTS}/test_poison.py::test_run_that_kills_its_process_fails_alone"

DISPATCH: Final = (
    Mutation(
        name="fencing",
        taken_out="fencing of a process that lost its Lease",
        edits=(
            (
                f"{PROVIDER}/attempt.py",
                "if not fence.held() or fence.lapses != self.entry.lapses:",
                "if False:",
            ),
        ),
        tests=(
            f"{_STORE}/test_cut_off.py::test_host_that_lost_its_lease_calls_nobody",
            f"{_FAULTS}/test_frozen.py::test_thawed_host_writes_nothing_over_its_heir",
            f"{_UNIT}/test_attempt.py::test_no_call_without_the_lease",
        ),
    ),
    Mutation(
        name="version-of-a-run",
        taken_out="resourceVersion on writes of a run's status",
        edits=(
            (
                f"{PROVIDER}/recorder.py",
                "patch_status(name, patch, version)",
                "patch_status(name, patch, None)",
            ),
        ),
        tests=(
            f"{_STORE}/test_cut_off.py::test_late_claim_meets_another_version",
            f"{_FAULTS}/test_by_hand.py::test_given_away_while_its_host_stands_still_it_is_not_written_over",
            f"{_UNIT}/test_attempt.py::test_run_that_is_not_ours_any_more_is_dropped",
        ),
    ),
    Mutation(
        name="saved-session",
        taken_out="Session saved before the turn is admitted",
        edits=(
            (
                f"{PROVIDER}/attempt.py",
                "await self._save(lambda status: with_session(status, session_id))",
                "pass",
            ),
            (f"{PROVIDER}/attempt.py", "assert self._status.session_id is not None", "pass"),
            (
                f"{PROVIDER}/attempt.py",
                "calls.admit_turn(self.run, self._status.session_id)",
                "calls.admit_turn(self.run, self._status.session_id or session_id)",
            ),
            (
                f"{PROVIDER}/attempt.py",
                "with_turn(status, turn.turn_id,",
                "with_turn(status if status.session_id else with_session(status, session_id), turn.turn_id,",
            ),
        ),
        tests=(_STOP, f"{_UNIT}/test_attempt.py::test_order_of_writes_and_calls"),
    ),
    Mutation(
        name="takeover-of-runs",
        taken_out="takeover of runs",
        edits=((f"{PROVIDER}/takeover.py", "elif assignee in live or", "elif assignee is not None or"),),
        tests=(
            f"{_FAULTS}/test_recovery.py::test_killed_host_is_continued_with_the_saved_session",
            f"{_APISERVER}/test_recovery.py::test_killed_process_is_taken_over_with_its_saved_session",
        ),
    ),
    Mutation(
        name="one-heir",
        taken_out="one heir for each run",
        edits=(
            (
                f"{PROVIDER}/takeover.py",
                "elif owner(meta.name, heirs) == term.assignee:",
                "else:",
            ),
        ),
        tests=(f"{_FAULTS}/test_recovery.py::test_five_hosts_share_two_hundred_orphans",),
    ),
    Mutation(
        name="sweep-of-runs",
        taken_out="the provider's sweep of unfinished runs",
        edits=((f"{PROVIDER}/dispatcher.py", '("sweep", self._sweeps),', ""),),
        tests=(
            f"{_FAULTS}/test_recovery.py::test_killed_host_is_continued_with_the_saved_session",
            f"{_APISERVER}/test_recovery.py::test_sweep_finds_what_the_watch_missed",
        ),
    ),
    Mutation(
        name="suspects",
        taken_out="one at a time for runs whose process was lost",
        edits=(
            (
                f"{PROVIDER}/suspects.py",
                "def is_suspect(status: RunStatus, policy: RetryPolicy) -> bool:\n",
                "def is_suspect(status: RunStatus, policy: RetryPolicy) -> bool:\n    return False\n",
            ),
        ),
        tests=(_POISON, f"{_UNIT}/test_suspects.py::test_who_is_suspect"),
    ),
    Mutation(
        name="own-attempt",
        taken_out="the attempt in what proves a save whose answer was lost: a Session found is ours",
        edits=(
            (
                f"{PROVIDER}/recorder.py",
                "    if _attempt_of(found) != _attempt_of(wanted):\n        return False\n",
                "",
            ),
            (f"{PROVIDER}/recorder.py", "if _is_ours(found, run) and _holds(", "if _holds("),
        ),
        tests=(f"{_UNIT}/test_attempt.py::test_run_that_is_not_ours_any_more_is_dropped",),
    ),
    Mutation(
        name="own-cancellation",
        taken_out="our own cancellation told from what a handler raises",
        edits=((f"{PROVIDER}/calls.py", "            if task.cancelling():", "            if False:"),),
        tests=(f"{_UNIT}/test_calls.py::test_what_a_handler_makes_of_our_cancellation_is_no_failure",),
    ),
    Mutation(
        name="gap-of-the-watch",
        taken_out="the sweep's look at what is in progress here and not ours any more",
        edits=((f"{PROVIDER}/takeover.py", "        await self._let_go(in_progress, found)\n", ""),),
        tests=(f"{_APISERVER}/test_recovery.py::test_what_was_lost_in_a_gap_of_the_watch_is_noticed",),
    ),
    Mutation(
        name="end-of-retries",
        taken_out="end of retries",
        edits=(
            (
                f"{CRDS}/transitions.py",
                "return status.attempts - status.releases >= self.max_attempts",
                "return False",
            ),
        ),
        tests=(_POISON, f"{_UNIT}/test_attempt.py::test_used_up_attempts_of_lost_processes_end_the_run"),
    ),
    Mutation(
        name="hand-over",
        taken_out="hand-over in `stop()`",
        edits=(
            (
                f"{PROVIDER}/drain.py",
                "gate = asyncio.Semaphore(_AT_ONCE)",
                "return ()\n        gate = asyncio.Semaphore(_AT_ONCE)",
            ),
        ),
        tests=(_STOP, f"{_APISERVER}/test_stop.py::test_waiting_runs_are_handed_over"),
    ),
    Mutation(
        name="bound-of-a-stop",
        taken_out="the bound of `stop()`",
        edits=((f"{PROVIDER}/drain.py", "end = loop.time() + grace", "end = loop.time() + grace + 600"),),
        tests=(_STOP,),
    ),
    Mutation(
        name="free-releases",
        taken_out="releases that cost no attempt",
        edits=(
            (
                f"{CRDS}/transitions.py",
                "return status.attempts - status.releases >= self.max_attempts",
                "return status.attempts >= self.max_attempts",
            ),
        ),
        tests=(
            f"{_FAULTS}/test_stop.py::test_ten_rolling_restarts_lose_nothing_and_use_up_no_attempt",
            f"{_UNIT}/test_attempt.py::test_handed_over_attempts_do_not_count",
        ),
    ),
)
