"""What tells who is there and what time it is."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import CLIENT, CRDS, OPERATOR, PROVIDER, Mutation

_FIRING: Final = "tests/faults/firing"
_DISPATCH: Final = "tests/faults/dispatch"
_UNIT: Final = "tests/unit/crds"
_OPERATOR: Final = "tests/unit/operator"
_CUT: Final = "tests/faults/store/test_cut_off.py"

PRESENCE: Final = (
    Mutation(
        name="presence",
        taken_out="presence: everybody counts as there",
        edits=((f"{CRDS}/presence.py", "return self.proves(instant) or any(", "return True or any("),),
        tests=(
            f"{_FIRING}/test_nobody_there.py::test_due_times_without_any_process_never_run[stopped-3]",
            f"{_UNIT}/test_presence.py::test_nobody_covers_nothing",
        ),
    ),
    Mutation(
        name="tail-of-dead-leases",
        taken_out="cancelling what was created in the tail of dead Leases",
        edits=(
            (
                f"{CRDS}/recovery.py",
                "return Orphan.CANCEL if is_over else Orphan.WAIT",
                "return Orphan.ADOPT",
            ),
        ),
        tests=(
            f"{_FIRING}/test_nobody_there.py::test_due_times_without_any_process_never_run[killed-3]",
            f"{_FIRING}/test_crash_points.py::test_an_operator_dies_as_it_cancels_what_nobody_will_start",
            f"{_UNIT}/test_decisions.py::test_settle_orphan",
        ),
    ),
    Mutation(
        name="doubt-about-the-tail",
        taken_out="keeping what was created in the tail of Leases until the window has passed",
        edits=(
            (f"{OPERATOR}/orphans.py", "now - parsed[1] <= self._window or ", ""),
            (f"{OPERATOR}/orphans.py", "now, self._window)", "now, timedelta(0))"),
        ),
        tests=(
            f"{_CUT}::test_due_time_of_a_long_cut_fires_once_the_hosts_are_back[created-in-the-tail]",
            f"{_OPERATOR}/test_orphans.py::test_a_run_that_may_still_be_wanted_is_left_alone",
        ),
    ),
    Mutation(
        name="looking-back",
        taken_out="looking back at what was skipped while every process was cut off",
        edits=((f"{OPERATOR}/firing_loop.py", "            self._look_back(entry, now, plan)\n", ""),),
        tests=(
            f"{_CUT}::test_due_time_of_a_long_cut_fires_once_the_hosts_are_back[skipped-first]",
            f"{_OPERATOR}/test_looking_back.py::test_what_a_process_was_cut_off_for_fires_once_it_is_back",
        ),
    ),
    Mutation(
        name="waiting-for-providers",
        taken_out="waiting for providers to come back to sight after an outage",
        edits=(
            (
                f"{CRDS}/firing.py",
                "return Decision.SKIP_NO_PROVIDER if settled and age > PRESENCE_SETTLE else Decision.WAIT",
                "return Decision.SKIP_NO_PROVIDER",
            ),
        ),
        tests=(
            f"{_CUT}::test_due_time_of_a_short_cut_fires_late",
            f"{_UNIT}/test_firing.py::test_nobody_is_only_believed_once_the_leases_were_seen_for_a_while",
        ),
    ),
    Mutation(
        name="time-of-the-api-server",
        taken_out="time of the API server",
        edits=(
            (
                f"{CRDS}/server_clock.py",
                "return wall if lower <= wall <= upper else lower",
                "return wall",
            ),
        ),
        tests=(
            f"{_FIRING}/test_clocks.py::test_wrong_and_jumping_clocks_move_no_due_time",
            f"{_DISPATCH}/test_clocks.py::test_wrong_clocks_take_nothing_from_the_living",
            f"{_UNIT}/test_server_clock.py::test_a_wrong_clock_is_corrected_to_within_a_second",
        ),
    ),
    Mutation(
        name="clock-of-the-observer",
        taken_out="Leases judged by the observer's own clock",
        edits=(
            (
                f"{CRDS}/presence.py",
                "monotonic - seen.changed",
                "datetime.now().timestamp() - lease.spec.renew_time.timestamp()",
            ),
        ),
        tests=(
            f"{_DISPATCH}/test_clocks.py::test_wrong_clocks_take_nothing_from_the_living",
            f"{_UNIT}/test_presence.py::test_clocks_of_two_machines_are_not_compared",
        ),
    ),
    Mutation(
        name="lease-release",
        taken_out="release of the Lease at the end of a process",
        edits=((f"{CLIENT}/lease_keeper.py", "if last is not None:", "if False:"),),
        tests=("tests/apiserver/client/test_lease_keeper.py::test_it_is_created_renewed_and_released",),
    ),
    Mutation(
        name="draining-mark",
        taken_out="the mark of a Lease whose process stops",
        edits=((f"{CLIENT}/lease_term.py", "self._draining = True", "self._draining = False"),),
        tests=(
            f"{_DISPATCH}/test_stop.py::test_stop_under_load_is_bounded_and_hands_everything_over",
            "tests/apiserver/provider/test_stop.py::test_a_rolling_update_holds_up_no_run",
            "tests/unit/client/test_lease_term.py::test_a_process_that_stops_says_so_and_stays_there",
        ),
    ),
    Mutation(
        name="polling-of-leases",
        taken_out="the provider's look at the Leases every two seconds",
        edits=((f"{PROVIDER}/dispatcher.py", '("presence", self._providers.poller.run),', ""),),
        tests=("tests/apiserver/provider/test_recovery.py::test_leases_are_looked_at_between_two_sweeps",),
    ),
)
