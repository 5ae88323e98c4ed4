import json
from contextlib import aclosing
from typing import Any

import pytest

from astrabox_scheduler_client.errors import ApiError, Gone, MalformedAnswer, ServerError
from astrabox_scheduler_client.runs import Runs
from astrabox_scheduler_client.watch import RunEvent, event_of
from tests.unit.client.scripted import ScriptedServer, chunked, status_object, transport_to


def run(name: str, version: str) -> dict[str, Any]:
    spec = {"deploymentId": "d", "payload": "secret"}
    return {"metadata": {"name": name, "resourceVersion": version}, "spec": spec}


def line(kind: str, value: Any) -> bytes:
    return json.dumps({"type": kind, "object": value}).encode()


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_a_change_carries_the_run(kind: str) -> None:
    event = event_of(line(kind, run("r", "4")), "/p")
    assert (event.type, event.name, event.resource_version) == (kind, "r", "4")
    assert event.run is not None
    assert event.run.spec.deployment_id == "d"


def test_a_bookmark_is_a_version() -> None:
    value = {"kind": "RunInvocation", "metadata": {"resourceVersion": "9"}, "spec": None}
    assert event_of(line("BOOKMARK", value), "/p") == RunEvent("BOOKMARK", "9")


def test_a_run_of_a_wrong_shape_is_an_event_of_its_own() -> None:
    value = {"metadata": {"name": "r", "resourceVersion": "4"}, "spec": {}}
    assert event_of(line("ADDED", value), "/p") == RunEvent("UNREADABLE", "4", "r")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (status_object(410, "Expired"), Gone),
        (status_object(500, "InternalError"), ServerError),
        ({}, ServerError),
    ],
)
def test_an_error_event_is_raised(status: dict[str, Any], kind: type[ApiError]) -> None:
    with pytest.raises(ApiError) as caught:
        event_of(line("ERROR", status), "/p")
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    "text", [b"", b"secret", b"{}", b'{"type":"ADDED"}', b'{"type":"SECRET","object":{}}']
)
def test_a_line_that_is_no_event_is_malformed_and_not_quoted(text: bytes) -> None:
    with pytest.raises(MalformedAnswer) as caught:
        event_of(text, "/p")
    assert "secret" not in str(caught.value).lower()


async def test_a_watch_asks_for_bookmarks_and_ends_with_the_server() -> None:
    step = chunked(line("ADDED", run("a", "4")) + b"\n" + line("BOOKMARK", run("", "6")) + b"\n")
    async with (
        ScriptedServer([step]).running() as server,
        transport_to(server.port) as (transport, _),
        aclosing(Runs(transport, "ns").watch("a=b", "3", timeout_seconds=7)) as events,
    ):
        assert [(each.type, each.name) async for each in events] == [("ADDED", "a"), ("BOOKMARK", "")]
    assert server.requests[0].target == (
        "/apis/scheduler.astrabox.io/v1/namespaces/ns/runinvocations?watch=true&allowWatchBookmarks=true"
        "&labelSelector=a%3Db&resourceVersion=3&timeoutSeconds=7"
    )
