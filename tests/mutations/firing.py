"""What makes each due time one run, and keeps all other times from becoming one."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import CLIENT, CRDS, OPERATOR, PROVIDER, Mutation

_FAULTS: Final = "tests/faults/firing"
_APISERVER: Final = "tests/apiserver/operator/test_firing.py"
_UNIT: Final = "tests/unit/operator"

FIRING: Final = (
    Mutation(
        name="name-as-lock",
        taken_out="the name as the lock: AlreadyExists counted as a failure",
        edits=((f"{OPERATOR}/run_creator.py", "return await self.found(entry, due)", "raise"),),
        tests=(
            f"{_FAULTS}/test_same_due_time.py::test_the_same_due_time_fired_twice_is_one_run",
            "tests/faults/store/test_lost_answers.py::test_run_of_a_due_time_whose_create_looks_failed",
            f"{_UNIT}/test_firing_errors.py::test_a_name_that_is_there_does_not_stop_the_next_due_time",
        ),
    ),
    Mutation(
        name="name-of-the-due-time",
        taken_out="the name as a function of the due time: a random part in it",
        edits=(
            (
                f"{OPERATOR}/run_creator.py",
                "from enum import Enum\n",
                "from enum import Enum\nfrom secrets import token_hex\n",
            ),
            (
                f"{OPERATOR}/run_creator.py",
                "name = scheduled_run_name(entry.name, due)",
                'name = scheduled_run_name(f"{entry.name}-{token_hex(4)}", due)',
            ),
        ),
        tests=(
            f"{_APISERVER}::test_two_loops_and_two_hundred_due_times_give_two_hundred_objects",
            f"{_UNIT}/test_firing_shares.py::test_two_operators_fire_two_hundred_due_times_once",
        ),
    ),
    Mutation(
        name="whose-run-is-there",
        taken_out="a look at whose run has the name: AlreadyExists is success whatever is there",
        edits=(
            (
                f"{OPERATOR}/run_creator.py",
                "return Created.THERE_ALREADY if same else Created.NAME_TAKEN",
                "return Created.THERE_ALREADY",
            ),
        ),
        tests=(f"{_UNIT}/test_firing_errors.py::test_a_name_of_another_deployment_is_no_success",),
    ),
    Mutation(
        name="runs-of-the-missed",
        taken_out="a look at the runs before due times are told as missed: those that have theirs are, too",
        edits=(
            (
                f"{OPERATOR}/missed.py",
                "found = [due for due in fired if after < due <= end]",
                "found: list[datetime] = []",
            ),
        ),
        tests=(f"{_UNIT}/test_missed_told.py::test_what_has_its_run_was_not_missed",),
    ),
    Mutation(
        name="status-waits-for-the-count",
        taken_out="a status that waits until what was passed over is counted: its heir counts nothing of it",
        edits=((f"{OPERATOR}/schedule_status.py", "counted = not entry.passed", "counted = True"),),
        tests=(f"{_UNIT}/test_missed_told.py::test_who_starts_before_it_is_counted_counts_it",),
    ),
    Mutation(
        name="one-by-one",
        taken_out="a confirmation for each of a few that are due together: one read of all of them, or none",
        edits=((f"{OPERATOR}/confirm_choice.py", "if len(names) <= ONE_BY_ONE:", "if not names:"),),
        tests=(
            f"{_UNIT}/test_one_bad_answer.py::test_one_read_that_fails_or_is_slow_holds_up_no_other[None-2.1]",
        ),
    ),
    Mutation(
        name="healthy-first",
        taken_out="an order among what is due: schedules whose creates hang come first, as the oldest",
        edits=(
            (
                f"{OPERATOR}/burst.py",
                "deque(sorted(candidates, key=lambda each: each.entry.troubled))",
                "deque(candidates)",
            ),
        ),
        tests=(f"{_UNIT}/test_overload.py::test_creates_that_hang_keep_no_other_schedule_from_firing[8]",),
    ),
    Mutation(
        name="past-the-cache",
        taken_out="the other question, to the store itself, where the API server's cache stands still",
        edits=((f"{CLIENT}/confirm.py", "self._unheard ^= {name}", "pass"),),
        tests=(
            "tests/unit/client/test_confirm.py::test_a_cache_that_does_not_answer_is_passed_by_at_the_next_look[None]",
        ),
    ),
    Mutation(
        name="fewer-at-a-time",
        taken_out="fewer calls at a time while the API server answers too late",
        edits=((f"{OPERATOR}/burst.py", "        self._adapt(result)\n", ""),),
        tests=(f"{_UNIT}/test_overload.py::test_an_overloaded_server_is_asked_for_less_at_a_time",),
    ),
    Mutation(
        name="confirmation",
        taken_out="confirmation before a create, operator",
        edits=(
            (
                f"{OPERATOR}/burst.py",
                "if confirmed.versions.get(entry.name) == candidate.version == entry.version:",
                "if candidate.version == entry.version:",
            ),
        ),
        tests=(
            f"{_FAULTS}/test_pause.py::test_what_a_dead_watch_has_not_brought_does_not_fire",
            f"{_UNIT}/test_firing_confirmed.py::test_a_disable_that_the_watch_has_not_brought_counts",
        ),
    ),
    Mutation(
        name="second-look",
        taken_out="second look at the schedule before a start, provider",
        edits=(
            (
                f"{PROVIDER}/attempt.py",
                "_START_MAX_AGE = timedelta(seconds=START_MAX_AGE_SECONDS)",
                "_START_MAX_AGE = timedelta(days=1)",
            ),
        ),
        tests=(
            f"{_FAULTS}/test_pause.py::test_a_create_that_was_under_way_is_not_started_after_a_disable",
            "tests/unit/provider/test_attempt.py::test_scheduled_run_confirmed_long_ago_is_looked_at_again",
        ),
    ),
    Mutation(
        name="active-since",
        taken_out="`activeSince`",
        edits=(
            (
                f"{CRDS}/firing.py",
                "return Observed(rule, since, declared)",
                "return Observed(rule, created, declared)",
            ),
        ),
        tests=(
            f"{_FAULTS}/test_operators_away.py::test_three_due_times_without_operators_fire_late_in_order",
            "tests/unit/crds/test_firing.py::test_a_rule_that_the_provider_changed_is_active_since_it_says",
        ),
    ),
    Mutation(
        name="earlier-rules",
        taken_out="`earlierRules`: an edit forgets the rule that it ends",
        edits=(
            (
                f"{PROVIDER}/rules.py",
                "replaced(stored, since, now, enabled=want.enabled) if stored is not None else None",
                "None",
            ),
        ),
        tests=(
            f"{_FAULTS}/test_operators_away.py::test_three_due_times_without_operators_fire_late_in_order",
            "tests/unit/provider/test_rules.py::test_the_rule_that_a_change_ends_is_kept",
        ),
    ),
    Mutation(
        name="catch-up-window",
        taken_out="catch-up window",
        edits=(
            (f"{CRDS}/firing.py", "if age > window:", "if False:"),
            (
                f"{OPERATOR}/run_creator.py",
                "if not timedelta(0) <= now - due <= window:",
                "if not timedelta(0) <= now - due:",
            ),
        ),
        tests=(
            f"{_FAULTS}/test_operators_away.py::test_what_is_older_than_the_window_is_skipped_with_a_trace",
            "tests/unit/crds/test_firing.py::test_decide",
        ),
    ),
    Mutation(
        name="retention-floor",
        taken_out="retention's floor",
        edits=(
            (
                f"{CRDS}/retention.py",
                "run.created is not None and now - run.created >= floor",
                "run.created is not None",
            ),
        ),
        tests=(
            f"{_FAULTS}/test_retention.py::test_a_run_outlives_the_replica_that_has_its_due_time_in_hand",
            "tests/unit/crds/test_decisions.py::test_a_young_run_stays_whatever_the_limit",
        ),
    ),
    Mutation(
        name="operator-takeover",
        taken_out="takeover of an operator's share",
        edits=(
            (
                f"{OPERATOR}/attendance.py",
                'self.observer.presence("operator", self.clock.monotonic())',
                'self.observer.presence("operator", 0.0)',
            ),
        ),
        tests=(f"{_FAULTS}/test_crash_points.py::test_an_operator_dies_around_its_lease",),
    ),
    Mutation(
        name="step-down",
        taken_out="step-down of an operator that gets nothing through",
        edits=(
            (
                f"{OPERATOR}/patience.py",
                "if not operators - {own} or",
                "if True or not operators - {own} or",
            ),
        ),
        tests=(
            "tests/faults/store/test_slow_and_refused.py::test_slow_for_one_operator_and_then_for_all",
            "tests/unit/operator/test_share.py::test_a_slow_one_leaves_its_share_and_comes_back_when_it_is_well",
        ),
    ),
)
