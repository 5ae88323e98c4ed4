"""A plan of the random mix: repeatable, complete over a few seeds, and no more than can be judged."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest

from tests.faults.history.due import due_times
from tests.faults.mix.performance import Troupe
from tests.faults.mix.plan import CRASH_POINTS, Density, plan, skews
from tests.faults.mix.steps import SINGLE, WIDE, WORKLOAD, Step
from tests.faults.mix.test_mix import DUE_A_MINUTE, SECONDS

HOSTS = ("host-1", "host-2", "host-3", "host-4")
OPERATORS = ("operator-1", "operator-2", "operator-3")
SEEDS = range(6)
SOAK = Density(deployments=60, commands=40, singles=22, kills=0.8, hosts_left=2)


def a_plan(seed: int, seconds: float = 180, density: Density | None = None) -> tuple[Step, ...]:
    return plan(seed, seconds, HOSTS, OPERATORS, density)


def test_the_same_seed_gives_the_same_plan() -> None:
    assert a_plan(7) == a_plan(7)
    assert len({repr(a_plan(seed)) for seed in SEEDS}) == len(SEEDS)
    assert skews(7, HOSTS, OPERATORS) == skews(7, HOSTS, OPERATORS)


def test_the_plan_of_a_seed_is_the_same_on_any_machine() -> None:
    text = repr(a_plan(1)).encode()
    assert hashlib.sha256(text).hexdigest()[:16] == "1b7a88a53397d11a"


def test_every_kind_of_step_comes_up_over_a_few_seeds() -> None:
    kinds = Counter(step.kind for seed in SEEDS for step in a_plan(seed, 300))
    assert set(kinds) == {*WORKLOAD, *SINGLE, *WIDE}
    crashes = Density(deployments=1, commands=1, singles=60, kills=0.0, to_ready=0.0)
    points = {step.point for seed in SEEDS for step in a_plan(seed, 900, crashes) if step.kind == "arm"}
    assert points == set(CRASH_POINTS)


@pytest.mark.parametrize("density", [Density(), SOAK], ids=["mix", "soak"])
@pytest.mark.parametrize("seed", SEEDS)
def test_steps_are_in_order_and_end_inside_the_plan(seed: int, density: Density) -> None:
    steps = a_plan(seed, 600, density)
    assert [step.at for step in steps] == sorted(step.at for step in steps)
    assert all(0 <= step.at < 600 for step in steps)
    assert all(step.at + step.seconds <= 600 for step in steps if step.kind in WIDE)
    assert all(step.at <= 580 for step in steps if step.kind not in WORKLOAD)


@pytest.mark.parametrize("density", [Density(), SOAK], ids=["mix", "soak"])
@pytest.mark.parametrize("seed", SEEDS)
def test_some_of_each_role_are_left_alone(seed: int, density: Density) -> None:
    """Without it hardly any due time would be certain, and a plan would show nothing."""
    steps = [step for step in a_plan(seed, 600, density) if step.kind in SINGLE]
    for step in steps:
        hit = {each.target for each in steps if each.at <= step.at < each.at + max(each.seconds, 0.001)}
        assert len(hit & set(HOSTS)) <= len(HOSTS) - density.hosts_left
        assert len(hit & set(OPERATORS)) <= len(OPERATORS) - density.operators_left


@pytest.mark.parametrize("seed", SEEDS)
def test_all_away_is_over_a_whole_minute(seed: int) -> None:
    for step in a_plan(seed, 900):
        if step.kind in ("hosts-away", "operators-away"):
            assert step.at // 60 < (step.at + step.seconds) // 60
            assert step.action in ("kill", "terminate") or (step.action, step.kind) == ("cut", "hosts-away")


def test_hosts_are_also_cut_off_all_at_once() -> None:
    steps = [step for seed in SEEDS for step in a_plan(seed, 900) if step.action == "cut"]
    assert any(step.seconds > 45 for step in steps), "longer than anybody waits for them"
    assert any(step.seconds < 30 for step in steps)


@pytest.mark.parametrize("seed", SEEDS)
def test_outages_of_the_control_plane_come_one_after_the_other(seed: int) -> None:
    spans = [
        (step.at, step.at + step.seconds)
        for step in a_plan(seed, 900, SOAK)
        if step.kind in ("kill-apiserver", "kill-etcd", "answer-429", "answer-500")
    ]
    assert all(end < begin for (_, end), (begin, _) in pairwise(spans))


@pytest.mark.parametrize("seed", SEEDS)
def test_commands_name_deployments_that_can_be_there(seed: int) -> None:
    state: dict[str, str] = {}
    for step in a_plan(seed, 900):
        if step.kind not in WORKLOAD or step.kind == "reconcile":
            continue
        before = state.get(step.target)
        allowed = {"create": None, "recreate": "deleted", "enable": "disabled"}.get(step.kind, "enabled")
        assert before == allowed, step
        after = {"delete": "deleted", "disable": "disabled"}.get(step.kind, "enabled")
        state[step.target] = after


def test_only_runs_that_were_asked_for_once_kill_or_block_a_host() -> None:
    """A schedule that kills its host each minute would leave nothing to look at."""
    steps = [step for seed in SEEDS for step in a_plan(seed, 900)]
    behaved = [(step, str(step.payload.get("behaviour", ""))) for step in steps]
    strange = [(step, how) for step, how in behaved if "kill" in how or "block" in how]
    assert strange
    assert all(step.kind == "run-now" for step, _ in strange)
    assert all("host-" in how for _, how in strange if "kill" in how)


def rules_at_each_minute(steps: Sequence[Step]) -> list[list[tuple[str, str]]]:
    """The rules that are enabled at each whole minute of a plan, all commands done."""
    rules: dict[str, tuple[str, str]] = {}
    off: set[str] = set()
    found = []
    for minute in range(1, int(SECONDS) // 60 + 1):
        for step in (step for step in steps if 60 * (minute - 1) <= step.at < 60 * minute):
            if step.kind in ("create", "recreate", "edit-cron"):
                rules[step.target] = step.cron, step.zone
            if step.kind in ("disable", "delete"):
                off.add(step.target)
            elif step.kind in ("enable", "recreate"):
                off.discard(step.target)
        found.append([rule for target, rule in rules.items() if target not in off])
    return found


@pytest.mark.parametrize("seed", range(1, 21))
def test_so_much_is_due_in_any_minute_that_the_mix_may_ask_for_it(seed: int) -> None:
    hour = 1_800_000_000
    steps = plan(seed, SECONDS, Troupe().host_names, Troupe().operator_names)
    for rules in rules_at_each_minute(steps):
        due = Counter(minute for rule in rules for minute in due_times(*rule, hour, hour + 3600))
        assert min(due[hour + 60 * minute] for minute in range(1, 61)) >= DUE_A_MINUTE


def test_one_clock_of_each_role_is_off() -> None:
    off = skews(3, HOSTS, OPERATORS)
    assert len(off) == 2
    assert len(set(off) & set(HOSTS)) == 1
    assert all(5 <= abs(seconds) <= 90 for seconds in off.values())
