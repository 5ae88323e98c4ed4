"""G1: hosts that were cut off from the API server, all of them at once, were there."""

import pytest

from tests.faults.history.facts import Bounds
from tests.unit.history.story import B, Story, expect, found, permitted, without


def cut_off(story: Story, begun: float, ended: float) -> None:
    for pid in (101, 102, 103):
        story.change_life(pid, hindered=[(begun, ended)])


def test_hosts_that_were_cut_off_were_there() -> None:
    story = without("every-240")
    cut_off(story, 235, 275)
    expect(story, "G1", "every", "was lost")


def test_hosts_that_are_cut_off_have_time_to_show_that_they_were_there() -> None:
    story = without("every-240")
    story.dispatch(story.create("every", 240, 315), B, 315.3)
    cut_off(story, 235, 275)
    permitted(story)


@pytest.mark.parametrize("at", [262, 310])
def test_what_they_may_still_start_is_not_cancelled(at: float) -> None:
    story = without("every-240")
    cut_off(story, 235, 275)
    story.save(story.create("every", 240), "op-1", at, phase="Cancelled")
    expect(story, "G1", "every-240", "was cancelled")


def test_what_has_become_too_old_meanwhile_is() -> None:
    story = without("every-240")
    story.bounds = Bounds(catch_up_window=70.0)
    cut_off(story, 235, 305)
    story.save(story.create("every", 240), "op-1", 312, phase="Cancelled")
    permitted(story)


def test_it_may_be_told_as_skipped_first() -> None:
    story = without("every-240")
    cut_off(story, 235, 275)
    story.skip("every", 262, 240, "NoAstraBoxProcess")
    story.dispatch(story.create("every", 240, 305), B, 305.3)
    permitted(story)


def test_but_not_before_that_could_be_known() -> None:
    story = without("every-240")
    cut_off(story, 235, 275)
    story.skip("every", 250, 240, "NoAstraBoxProcess")
    story.dispatch(story.create("every", 240, 305), B, 305.3)
    expect(story, "G1", "every", "when nobody could know that")


def test_nor_of_hosts_that_were_there_all_the_time() -> None:
    story = without("every-240")
    story.skip("every", 262, 240, "NoAstraBoxProcess")
    story.dispatch(story.create("every", 240, 305), B, 305.3)
    assert any("it has a run, or never was due" in each.what for each in found(story))
