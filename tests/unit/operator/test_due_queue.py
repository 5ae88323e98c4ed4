from datetime import timedelta

from astrabox_scheduler_operator.due_queue import DueQueue
from tests.unit.operator.world import START


def test_a_name_has_one_time_and_moves() -> None:
    queue = DueQueue()
    queue.put("a", START + timedelta(minutes=5))
    queue.put("b", START + timedelta(minutes=2))
    queue.put("a", START + timedelta(minutes=1))
    assert queue.earliest() == START + timedelta(minutes=1)
    assert queue.pop_due(START + timedelta(minutes=10), 10) == ["a", "b"]
    assert queue.earliest() is None
    assert len(queue) == 0


def test_at_most_the_limit_is_taken_out() -> None:
    queue = DueQueue()
    for number in range(5):
        queue.put(f"n{number}", START)
    assert queue.pop_due(START, 2) == ["n0", "n1"]
    assert len(queue) == 3


def test_a_dropped_name_does_not_come() -> None:
    queue = DueQueue()
    queue.put("a", START)
    queue.drop("a")
    queue.drop("never there")
    assert queue.pop_due(START, 5) == []


def test_what_was_moved_does_not_grow_the_heap() -> None:
    """FI-12: a schedule that is edited for years costs no memory."""
    queue = DueQueue()
    for number in range(20_000):
        queue.put("a", START + timedelta(seconds=number))
    assert len(queue._heap) < 2_000


def test_a_lost_wake_up_comes_back() -> None:
    """FI-10: the heap is made anew from what is planned."""
    queue = DueQueue()
    queue.put("a", START)
    queue._heap.clear()
    assert queue.pop_due(START, 5) == []
    queue.recover()
    assert queue.pop_due(START, 5) == ["a"]
