"""G2."""

from tests.unit.history.story import B, a_good_day, expect, found, permitted


def test_two_runs_under_two_names() -> None:
    story = a_good_day()
    story.dispatch(story.create("every", 240, 240.5, name="other"), B, 241)
    expect(story, "G2", "other", "2 runs were created")


def test_two_objects_under_one_name() -> None:
    story = a_good_day()
    story.create("every", 240, 240.1, uid="another")
    expect(story, "G2", "every-240", "2 runs were created")


def test_a_create_without_an_answer_may_be_repeated() -> None:
    story = a_good_day()
    story.create("every", 240, 240.1, code=504)
    story.create("every", 240, 240.3, code=409, by="op-2")
    permitted(story)


def test_one_name_for_two_due_times() -> None:
    story = a_good_day()
    story.create("every", 420, 240.1, name="every-240")
    assert any("stands for 2 things" in each.what for each in found(story))


def test_calls_of_another_deployment() -> None:
    story = a_good_day()
    story.change("calls", lambda call: call.run_id == "every-240", deployment_id="half")
    expect(story, "G2", "every-240", "another Deployment")


def test_an_object_that_nobody_created() -> None:
    story = a_good_day()
    story.touch_runs.append(lambda runs: runs["every-240"]["metadata"].update(uid="found"))
    assert {each.what.split(",")[0] for each in found(story) if each.guarantee == "G2"} >= {
        "the object found is there at the end"
    }


def test_an_object_of_a_create_without_an_answer() -> None:
    story = a_good_day()
    story.touch_runs.append(lambda runs: runs["every-240"]["metadata"].update(uid="found"))
    story.change(
        "writes",
        lambda w: w.name == "every-240" and w.verb == "create",
        code=None,
        completed=None,
        after=None,
    )
    run = a_good_day().history().runs["every-240"]
    story.touch_runs.insert(
        0, lambda runs: runs.update({"every-240": {**run, "metadata": dict(run["metadata"])}})
    )
    permitted(story)


def test_an_object_that_is_gone_undeleted() -> None:
    story = a_good_day()
    story.touch_runs.append(lambda runs: runs.pop("every-240"))
    expect(story, "G2", "every-240", "no request deleted it")
