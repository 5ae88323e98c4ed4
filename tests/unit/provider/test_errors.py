"""Whatever the store answers: errors of the seam, in words that are not the engine's, and in time."""

import asyncio
import importlib
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from astrabox.seams.scheduler import (
    InvalidSchedule,
    Schedule,
    ScheduleCapacityExceeded,
    SchedulerConfigurationError,
    SchedulerUnavailable,
)
from astrabox_scheduler_kubernetes import KubernetesSchedulerProvider
from astrabox_scheduler_kubernetes.engine import Engine
from astrabox_scheduler_kubernetes.settings import PREFIX, Settings
from astrabox_scheduler_kubernetes.timing import Timing

TIMING = Timing(
    lease_duration=1.0,
    lease_period=0.4,
    first_pause=0.01,
    longest_pause=0.05,
    settle=0.3,
    straggle=0.2,
    hand_over=0.3,
    stop_margin=1.5,
)
ENGINE_WORDS = re.compile(
    r"\b(kubernetes|k8s|kubectl|etcd|api ?server|resource ?version|crds?|custom resource|lease|namespace|"
    r"pod|http|aiohttp|status code|[345]\d\d|traceback|errno|timeout|refused connection|json)\b",
    re.IGNORECASE,
)


def status(code: int, reason: str, message: str = "told by the server") -> web.Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return web.json_response(body, status=code)


async def truncated(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"kind":')
    assert request.transport is not None
    request.transport.close()
    return response


async def silent(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(30)
    return web.Response()


def always(make: Callable[[], web.Response]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_: web.Request) -> web.StreamResponse:
        return make()

    return answer


FAULTS: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
    "timeout": silent,
    "unauthorized": always(lambda: status(401, "Unauthorized")),
    "forbidden": always(lambda: status(403, "Forbidden", 'pods is forbidden: User "x" cannot get')),
    "not served": always(lambda: web.Response(status=404, text="404 page not found")),
    "conflict": always(lambda: status(409, "Conflict", "the object has been modified")),
    "gone": always(lambda: status(410, "Expired")),
    "too large": always(lambda: status(413, "RequestEntityTooLarge")),
    "invalid": always(lambda: status(422, "Invalid", "spec.cron: Invalid value")),
    "too many": always(lambda: status(429, "TooManyRequests")),
    "server error": always(lambda: status(500, "InternalError", "etcdserver: request timed out")),
    "unavailable": always(lambda: status(503, "ServiceUnavailable")),
    "malformed": always(lambda: web.Response(text="<html>proxy</html>")),
    "wrong shape": always(lambda: web.json_response({"items": 7})),
    "truncated": truncated,
}


class Handler:
    async def start_session(self, invocation: Any) -> str:
        raise AssertionError

    async def admit_turn(self, invocation: Any, session_id: str) -> Any:
        raise AssertionError


def kubeconfig(path: Path, url: str) -> Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    """Reading a kubeconfig imports for seconds, once in a process; the bounds below are those of calls."""
    importlib.import_module("kubernetes_asyncio.config")


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Callable[[Any], Awaitable[dict[str, str]]]]:
    runners: list[web.AppRunner] = []

    async def begin(answer: Any) -> dict[str, str]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        runners.append(runner)
        port = runner.addresses[0][1]
        return environ(kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{port}"))

    yield begin
    for runner in runners:
        await runner.cleanup()


def environ(path: Path) -> dict[str, str]:
    return {f"{PREFIX}KUBECONFIG": str(path), f"{PREFIX}REQUEST_TIMEOUT_SECONDS": "0.3"}


def patient(variables: dict[str, str]) -> dict[str, str]:
    """With time for an answer that does come, on a machine with much to do."""
    return variables | {f"{PREFIX}REQUEST_TIMEOUT_SECONDS": "10"}


def unchecked(variables: dict[str, str]) -> KubernetesSchedulerProvider:
    """A provider whose configure passed while the store was there."""
    provider = KubernetesSchedulerProvider(environ=variables, timing=TIMING)
    provider._configured = Settings.from_environment(variables)
    provider._engine_ = Engine(provider._configured, TIMING)
    return provider


async def every_call(provider: KubernetesSchedulerProvider, most: float) -> dict[str, BaseException | None]:
    schedule = Schedule("d", "* * * * *", "UTC", True, {})
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "apply": lambda: provider.apply(schedule),
        "delete": lambda: provider.delete("d"),
        "reconcile": lambda: provider.reconcile([schedule]),
        "manual": lambda: provider.enqueue("d", {}, trigger="manual"),
        "replay": lambda: provider.enqueue("d", {}, trigger="replay", replayed_from_run_id="r"),
        "list_runs": lambda: provider.list_runs("d"),
        "start": lambda: provider.start(Handler()),
        "stop": provider.stop,
    }
    outcomes: dict[str, BaseException | None] = {}
    for name, call in calls.items():
        begun = time.monotonic()
        try:
            await call()
        except Exception as error:  # noqa: BLE001 - which ones they are is the question
            outcomes[name] = error
        else:
            outcomes[name] = None
        assert time.monotonic() - begun < most, f"{name} took too long"
    return outcomes


def check(outcomes: dict[str, BaseException | None], expected: tuple[type[Exception], ...]) -> None:
    assert outcomes.pop("stop") is None
    for name, error in outcomes.items():
        assert isinstance(error, expected), f"{name}: {error!r}"
        found = ENGINE_WORDS.search(str(error))
        assert found is None, f"{name} speaks of {found[0]!r}: {error}"
        assert error.__cause__ is not None, f"{name}: the cause is not chained"


@pytest.mark.parametrize("fault", FAULTS)
async def test_faults_become_errors_of_the_seam(serve: Any, fault: str) -> None:
    provider = unchecked(await serve(FAULTS[fault]))
    outcomes = await every_call(provider, most=8.0)
    allowed = (
        (SchedulerUnavailable, ScheduleCapacityExceeded) if fault == "too large" else (SchedulerUnavailable,)
    )
    check(outcomes, allowed)


async def test_a_lacking_right_is_told_as_such_to_both(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The user, for whom it is of no use to try again, and whoever has to grant it."""
    outcomes = await every_call(unchecked(await serve(FAULTS["forbidden"])), most=8.0)
    check(outcomes, (SchedulerUnavailable,))
    for name, error in outcomes.items():
        assert "lacks a right that this takes. Trying again does not help" in str(error), name
    told = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert len(told) == len(outcomes)
    assert all('User "x" cannot get; to grant what the account lacks' in each for each in told)
    assert all("astrabox.serviceAccounts" in each for each in told)
    assert all("with astrabox.rbac=true" in each for each in told)


async def test_a_policy_that_refuses_is_not_told_as_a_lacking_right(
    serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    refused = always(lambda: status(403, "Forbidden", "runs.x is forbidden: policy 'p' denied"))
    outcomes = await every_call(unchecked(await serve(refused)), most=8.0)
    check(outcomes, (SchedulerUnavailable,))
    assert all("a rule of the scheduler's store refuses it" in str(each) for each in outcomes.values())
    assert "astrabox.serviceAccounts" not in caplog.text


async def written_by_nobody(request: web.Request) -> web.StreamResponse:
    if request.method == "GET" and request.path.endswith("/deploymentschedules"):
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
    if request.method == "GET":
        return status(404, "NotFound")
    return status(403, "Forbidden", 'pods is forbidden: User "x" cannot create')


async def test_a_reconcile_that_may_only_read_says_so(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    provider = unchecked(await serve(written_by_nobody))
    with pytest.raises(SchedulerUnavailable) as caught:
        await provider.reconcile([Schedule(each, "* * * * *", "UTC", True, {}) for each in "ab"])
    told = "The schedules of Deployment a, b could not be stored: the scheduler lacks a right"
    assert str(caught.value).startswith(told)
    assert caught.value.__cause__ is not None
    assert caplog.text.count("astrabox.serviceAccounts") == 1


async def one_name_refused(request: web.Request) -> web.StreamResponse:
    if request.method == "POST" and b'"name":"a"' in await request.read():
        return status(403, "Forbidden", 'pods is forbidden: User "x" cannot create')
    if request.method == "POST":
        return status(422, "Invalid", "no")
    return await written_by_nobody(request)


async def test_a_reconcile_names_those_that_were_refused_alone(serve: Any) -> None:
    provider = unchecked(await serve(one_name_refused))
    with pytest.raises(SchedulerUnavailable) as caught:
        await provider.reconcile([Schedule(each, "* * * * *", "UTC", True, {}) for each in "ab"])
    told = "The schedules of Deployment a could not be stored: the scheduler lacks a right"
    assert str(caught.value).startswith(told)


async def test_a_log_line_stays_one_line_whatever_an_id_is(
    serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    provider = unchecked(await serve(written_by_nobody))
    with pytest.raises(SchedulerUnavailable):
        await provider.reconcile([Schedule("a\nERROR b", "* * * * *", "UTC", True, {})])
    assert not [each for each in caplog.messages if "\n" in each]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("unauthorized", "the credentials are refused: check the service account or the kubeconfig"),
        ("unavailable", "check the API server"),
        (None, "check address, network policies and proxy"),
    ],
)
async def test_a_cluster_that_cannot_be_asked_is_told_once_with_what_to_check(
    serve: Any, tmp_path: Path, fault: str | None, told: str
) -> None:
    away = environ(kubeconfig(tmp_path / "away", "http://127.0.0.1:9"))
    variables = patient(away if fault is None else await serve(FAULTS[fault]))
    provider = KubernetesSchedulerProvider(environ=variables, timing=TIMING)
    with pytest.raises(SchedulerConfigurationError) as caught:
        await asyncio.to_thread(provider.configure, repository_backend=None)
    _, line = str(caught.value).splitlines()
    assert "does not answer as it should" in line
    assert line.endswith(told)


async def no_name(request: web.Request) -> web.StreamResponse:
    if request.path.endswith("/selfsubjectaccessreviews"):
        return web.json_response({"status": {"allowed": False}}, status=201)
    return status(404, "NotFound")


async def test_what_is_missing_is_told_though_the_name_of_the_account_is_not(serve: Any) -> None:
    provider = KubernetesSchedulerProvider(environ=patient(await serve(no_name)), timing=TIMING)
    with pytest.raises(SchedulerConfigurationError, match="the account may not create, "):
        await asyncio.to_thread(provider.configure, repository_backend=None)


async def test_refused_connection_and_no_configuration(tmp_path: Path) -> None:
    for path in (kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9"), tmp_path / "absent"):
        outcomes = await every_call(unchecked(environ(path)), most=8.0)
        check(outcomes, (SchedulerUnavailable,))


@pytest.mark.parametrize("fault", FAULTS)
async def test_configure_says_it_to_the_operator(serve: Any, fault: str) -> None:
    """Inside a running event loop, which goes on answering meanwhile is not asked for: a thread asks."""
    variables = await serve(FAULTS[fault])
    provider = KubernetesSchedulerProvider(environ=variables, timing=TIMING)
    begun = time.monotonic()
    with pytest.raises(SchedulerConfigurationError, match="cannot run here"):
        await asyncio.to_thread(provider.configure, repository_backend=None)
    assert time.monotonic() - begun < 18
    with pytest.raises(SchedulerConfigurationError):
        await provider.apply(Schedule("d", "* * * * *", "UTC", True, {}))


async def conflicting(request: web.Request) -> web.StreamResponse:
    """Everything can be read, and every write meets somebody else's."""
    spec = {"deploymentId": "d", "cron": "0 0 * * *", "timeZone": "UTC", "payload": "{}"}
    item = {"metadata": {"name": "d", "uid": "u", "resourceVersion": "1"}, "spec": spec}
    if request.method == "GET":
        named = request.path.endswith("/d")
        return web.json_response(item if named else {"metadata": {"resourceVersion": "1"}, "items": [item]})
    return status(409, "AlreadyExists" if request.method == "POST" else "Conflict")


async def test_endless_conflicts_end(serve: Any) -> None:
    provider = unchecked(await serve(conflicting))
    outcomes = await every_call(provider, most=8.0)
    assert outcomes.pop("list_runs") is None, "what cannot be read is left out of the history"
    check(outcomes, (SchedulerUnavailable,))


async def test_values_that_are_refused_need_no_store(tmp_path: Path) -> None:
    provider = unchecked(environ(tmp_path / "absent"))
    with pytest.raises(InvalidSchedule, match="not JSON"):
        await provider.enqueue("d", {"p": (1,)}, trigger="manual")
    with pytest.raises(InvalidSchedule, match="replay"):
        await provider.enqueue("d", {}, trigger="manual", replayed_from_run_id="r")
    with pytest.raises(InvalidSchedule, match="characters"):
        await provider.apply(Schedule("\ud800", "* * * * *", "UTC", True, {}))
