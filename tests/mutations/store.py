"""What keeps stored and told the same while the API server, the network and other lists disagree."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import CLIENT, CRDS, OPERATOR, PROVIDER, Mutation

_FAULTS: Final = "tests/faults/store"
_RECONCILE: Final = "tests/faults/dispatch/test_reconcile.py"
_APISERVER: Final = "tests/apiserver/provider"
_ANSWERS: Final = f"{_APISERVER}/test_lost_answers.py"
_OLDER: Final = f"{_FAULTS}/test_older_definition.py"
_UNIT: Final = "tests/unit"
_CONFLICT: Final = "test_overlapping.py::test_a_conflict_does_not_bring_back_the_older_command"

STORE: Final = (
    Mutation(
        name="tombstones",
        taken_out="tombstones: a delete leaves nothing behind",
        edits=(
            (
                f"{PROVIDER}/writing.py",
                "await self._write(tombstone, create=stored is None, marked=True)",
                "if stored is not None:\n                    await self._delete(stored)",
            ),
        ),
        tests=(
            f"{_RECONCILE}::test_old_lists_undo_no_command",
            f"{_RECONCILE}::test_command_between_look_and_write_wins",
            f"{_APISERVER}/test_deletion.py::test_a_deleted_schedule_is_not_brought_back_by_an_older_list",
        ),
    ),
    Mutation(
        name="hold-of-tombstones",
        taken_out="the time for which tombstones stay",
        edits=(
            (
                f"{CRDS}/deletion.py",
                "return at is None or abs(now - at) >= DELETED_KEPT",
                "return True",
            ),
        ),
        tests=(
            f"{_RECONCILE}::test_old_lists_undo_no_command",
            f"{_UNIT}/crds/test_deletion.py::test_how_long_it_stays",
        ),
    ),
    Mutation(
        name="marks-of-applies",
        taken_out="marks of what was applied",
        edits=(
            (
                f"{PROVIDER}/rules.py",
                "return at is not None and abs(now - at) < timedelta(seconds=seconds)",
                "return False",
            ),
        ),
        tests=(
            f"{_RECONCILE}::test_old_lists_undo_no_command",
            f"{_RECONCILE}::test_command_between_look_and_write_wins",
            f"{_UNIT}/provider/test_rules.py::test_recently_applied",
        ),
    ),
    Mutation(
        name="putting-back",
        taken_out="putting back what an unanswered write may have changed",
        edits=((f"{PROVIDER}/schedules.py", "self._restorer.begin(name, left)", "pass"),),
        tests=(
            f"{_FAULTS}/test_lost_answers.py::test_schedule_of_a_refused_command_is_put_back[edit]",
            f"{_ANSWERS}::test_old_state_is_put_back_when_the_fate_of_an_apply_is_unknown",
        ),
    ),
    Mutation(
        name="withdrawing",
        taken_out="withdrawing a run that AstraBox was told is not saved",
        edits=((f"{PROVIDER}/requests.py", "self.unsaved.withdraw(run)", "pass"),),
        tests=(
            f"{_FAULTS}/test_lost_answers.py::test_run_now_that_is_refused_leaves_nothing_behind",
            f"{_APISERVER}/test_requests.py::test_run_whose_enqueue_has_failed_is_not_started",
        ),
    ),
    Mutation(
        name="own-create",
        taken_out="AlreadyExists of one's own create recognised",
        edits=((f"{PROVIDER}/requests.py", "if found.spec != run.spec:", "if True:"),),
        tests=(
            f"{_FAULTS}/test_lost_answers.py::test_run_now_whose_create_looks_failed",
            f"{_APISERVER}/test_requests.py::test_enqueue_without_an_answer_saves_one_run",
        ),
    ),
    Mutation(
        name="pauses",
        taken_out="pauses between repeats",
        edits=((f"{PROVIDER}/timing.py", "return min(max(self._last, asked or 0.0),", "return min(0.0,"),),
        tests=(
            f"{_FAULTS}/test_slow_and_refused.py::test_refused_for_twenty_seconds[429]",
            f"{_UNIT}/provider/test_parts.py::test_pauses_double_and_honour_the_server",
        ),
    ),
    Mutation(
        name="end-without-a-watch",
        taken_out="end of the process when its watch is refused for good",
        edits=((f"{OPERATOR}/app.py", "await self._watch.ended.wait()", "await asyncio.Event().wait()"),),
        tests=(f"{_FAULTS}/test_cut_off.py::test_refused_credentials",),
    ),
    Mutation(
        name="late-answers",
        taken_out="the operator's doubt in a read that is older than what the watch has brought since",
        edits=(
            (f"{OPERATOR}/index.py", "if current is not over:", "if current is None and over is not None:"),
        ),
        tests=(
            f"{_UNIT}/operator/test_index.py::test_a_read_that_is_answered_late_undoes_nothing",
            f"{_UNIT}/operator/test_one_bad_answer.py::test_a_due_time_survives_an_edit_during_its_own_read",
        ),
    ),
    Mutation(
        name="sweep-of-schedules",
        taken_out="the operator's reads of what a dead watch has missed",
        edits=((f"{OPERATOR}/sweep.py", "stale[:_MAX_REREADS], now)", "(), now)"),),
        tests=(
            f"{_UNIT}/operator/test_sweep.py::test_what_the_watch_missed_is_read_again_and_makes_it_behind",
        ),
    ),
    Mutation(
        name="fields-of-definitions",
        taken_out="check of the definitions' fields",
        edits=(
            (
                f"{CRDS}/crd.py",
                "elif lacking := sorted(fields - set(field_paths(served))):",
                "elif lacking := sorted(fields & set()):",
            ),
        ),
        tests=(
            f"{_OLDER}::test_older_definitions_are_named_and_replaced_under_live_objects",
            f"{_UNIT}/crds/test_lacking_fields.py::test_a_definition_without_earlier_rules_is_older",
        ),
    ),
    Mutation(
        name="token-read-again",
        taken_out="token read again",
        edits=(
            (
                f"{CLIENT}/connect.py",
                "before = self.generation\n",
                "return False\n        before = self.generation\n",
            ),
        ),
        tests=("tests/faults/dispatch/test_tokens.py::test_revoked_tokens_stop_nothing",),
    ),
    Mutation(
        name="overtaken-commands",
        taken_out="a command under way gives way to a later one",
        edits=(
            (f"{PROVIDER}/writing.py", "if marked and self._is_overtaken(known):", "if False:"),
            (f"{PROVIDER}/writing.py", "if self._is_overtaken(stored):", "if False:"),
        ),
        tests=(
            "tests/faults/dispatch/test_reconcile.py::test_a_command_under_way_does_not_undo_a_later_one",
            f"tests/apiserver/provider/{_CONFLICT}",
            f"{_UNIT}/provider/{_CONFLICT}",
        ),
    ),
)
