"""G1: hosts that were cut off from the API server, all of them at once, were there."""

from tests.unit.history.story import B, Story, expect, permitted, without


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


def test_a_host_that_comes_anew_cancels_what_those_that_are_cut_off_had() -> None:
    story = without("every-240")
    cut_off(story, 235, 275)
    story.save(story.create("every", 240), "b", 262, phase="Cancelled")
    permitted(story)


def test_a_host_that_was_cut_off_and_is_back_has_shown_that_it_was_there() -> None:
    story = without("every-240")
    cut_off(story, 235, 275)
    story.save(story.create("every", 240), "b", 310, phase="Cancelled")
    expect(story, "G1", "every-240", "was cancelled")
