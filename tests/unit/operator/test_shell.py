"""Settings, logs, preflight, health, repeat, and what kopf is told."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from astrabox_scheduler_client.endpoint import Endpoint, Tls
from astrabox_scheduler_client.environment import SettingsError
from astrabox_scheduler_client.errors import ApiError, Unreachable
from astrabox_scheduler_client.presence import PresencePoller
from astrabox_scheduler_crds.crd import run_crd, schedule_crd
from astrabox_scheduler_crds.labels import ROLE_LABEL
from astrabox_scheduler_crds.lease import Lease, LeaseSpec
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.permissions import Permission
from astrabox_scheduler_crds.presence import PresenceObserver
from astrabox_scheduler_crds.server_clock import ServerClock
from astrabox_scheduler_operator import command
from astrabox_scheduler_operator.attendance import LeaseAttendance
from astrabox_scheduler_operator.health import HealthServer, stale
from astrabox_scheduler_operator.logs import configure_logs
from astrabox_scheduler_operator.preflight import Preflight
from astrabox_scheduler_operator.repeat import repeat
from astrabox_scheduler_operator.settings import PREFIX, Settings
from astrabox_scheduler_operator.watch import change_of, connection_info, refusal, watch_settings
from tests.unit.operator.world import MARKER


def test_an_empty_environment_gives_the_defaults() -> None:
    """RT-04: retention is on without a word."""
    settings = Settings.from_environment({"HOME": "/", PREFIX + "NAMESPACE": ""})
    assert (settings.namespace, settings.history_limit, settings.health_port) == (None, 200, 8080)
    assert settings.catch_up_window.total_seconds() == 600


def test_all_faults_are_told_at_once() -> None:
    environment = {
        PREFIX + "HISTORY_LIMIT": "none",
        PREFIX + "CATCH_UP_WINDOW_SECONDS": "1",
        PREFIX + "NAMESPACE": "Not A Name",
        PREFIX + "HISTORYLIMIT": "5",
    }
    with pytest.raises(SettingsError) as raised:
        Settings.from_environment(environment)
    told = str(raised.value)
    for name in environment:
        assert name in told
    assert "how late a due time may still fire" in told


def test_a_service_of_our_name_is_no_mistake() -> None:
    """Kubernetes adds these to every pod of the namespace; a Service may be for our health."""
    added = {"SERVICE_HOST": "10.0.0.7", "PORT_80_TCP": "tcp://10.0.0.7:80", "HEALTH_SERVICE_PORT": "80"}
    added["HEALTH_PORT"] = "tcp://10.0.0.7:80"
    assert Settings.from_environment({PREFIX + name: text for name, text in added.items()}) == Settings()


def test_the_command_refuses_a_typo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PREFIX + "HEALTHPORT", "1")
    assert command.main([]) == 2
    assert "HEALTHPORT is not known" in capsys.readouterr().err


@pytest.mark.parametrize(("level", "style"), [("warning", "TEXT"), ("Warning", "Text"), ("WARNING", "text")])
def test_the_log_is_chosen_in_any_case(level: str, style: str) -> None:
    settings = Settings.from_environment({PREFIX + "LOG_LEVEL": level, PREFIX + "LOG_FORMAT": style})
    assert (settings.log_level, settings.log_format) == ("WARNING", "text")


@pytest.mark.parametrize(
    ("option", "text"), [("--help", PREFIX + "CREATE_CONCURRENCY"), ("--version", "astrabox")]
)
def test_options(option: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main([option])
    assert ended.value.code == 0
    assert text in capsys.readouterr().out


@pytest.fixture
def logging_kept() -> Iterator[None]:
    root = logging.getLogger()
    kept = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in ("kopf", "aiohttp", "asyncio")}
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:], root.level = kept
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.mark.usefixtures("logging_kept")
def test_a_json_line_has_its_fields_and_no_objects(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("DEBUG", "json")
    body = {"spec": {"payload": MARKER}}
    logging.getLogger("x").warning("skipped %s", "one", extra={"due": "d", "count": 2, "body": body})
    logging.getLogger("kopf.objects").debug(MARKER)
    (line,) = capsys.readouterr().err.splitlines()
    told = json.loads(line)
    assert (told["message"], told["level"], told["due"], told["count"]) == ("skipped one", "WARNING", "d", 2)
    assert datetime.fromisoformat(told["time"]).tzinfo == UTC
    assert MARKER not in line


@pytest.mark.usefixtures("logging_kept")
def test_a_text_line_has_its_fields_and_no_objects(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("INFO", "text")
    logging.getLogger("x").info("fired", extra={"run": "r", "body": {"payload": MARKER}})
    line = capsys.readouterr().err
    assert line.endswith("x: fired run=r\n")


@pytest.mark.usefixtures("logging_kept")
def test_a_trace_is_one_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("INFO", "json")
    logging.getLogger("x").error("ended", exc_info=RuntimeError("broken"))
    (line,) = capsys.readouterr().err.splitlines()
    assert "RuntimeError: broken" in json.loads(line)["exc_info"]


def published() -> dict[str, Any]:
    """The document of our CRDs."""
    schemas = {}
    for definition in (schedule_crd(), run_crd()):
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        kind = definition["spec"]["names"]["kind"]
        mark = {"group": "scheduler.astrabox.io", "version": "v1", "kind": kind}
        schemas[kind] = {**schema, "x-kubernetes-group-version-kind": [mark]}
    return {"components": {"schemas": schemas}}


class Cluster:
    """Answers in turn."""

    def __init__(self, *answers: Mapping[str, Any] | ApiError | None, denied: list[list[Permission]]) -> None:
        self.answers, self.denials = list(answers), denied

    async def published_schema(self) -> Mapping[str, Any] | None:
        answer = self.answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    async def denied(self, permissions: tuple[Permission, ...]) -> list[Permission]:
        return self.denials.pop(0)


async def test_the_start_waits_and_says_once_what_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    lacking = [Permission("scheduler.astrabox.io", "runinvocations", "create")]
    away = Unreachable("refused", reason="NotSent")
    cluster = Cluster(away, away, None, published(), published(), published(), denied=[lacking, lacking, []])
    preflight = Preflight(cluster, cluster, "space")
    assert "first look" in str(preflight.waiting_for)
    await preflight.wait(poll_seconds=0)
    assert not preflight.waiting_for
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 4
    assert "does not answer" in told[0]
    assert (
        "not installed: install the chart of this release, or upgrade to it, with crds.install=true"
        in told[1]
    )
    assert "create runinvocations.scheduler.astrabox.io" in told[2]
    assert "with rbac.create=true" in told[2]
    assert "`kubectl -n space create rolebinding " in told[2]


async def test_health_says_what_is_stale() -> None:
    """WA-15: 503 with the name of what is stale, not just an open port."""
    complaints: list[str] = []
    health = HealthServer(
        "127.0.0.1", 0, alive=lambda: complaints, ready=lambda: ["loading"], metrics=lambda: b"m 1\n"
    )
    async with health, aiohttp.ClientSession(f"http://127.0.0.1:{health.port}") as session:
        async with session.get("/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")
        complaints += stale("firing loop", 10.0, 71.0)
        async with session.get("/healthz") as answer:
            assert answer.status == 503
            assert await answer.text() == "firing loop: last completed 61 s ago\n"
        async with session.get("/readyz") as answer:
            assert answer.status == 503
        async with session.get("/metrics") as answer:
            assert await answer.read() == b"m 1\n"


@pytest.mark.parametrize(("last", "count"), [(60.0, 0), (16.0, 0), (14.0, 1), (None, 1)])
def test_staleness(last: float | None, count: int) -> None:
    """WA-15: fails after 30-60 s."""
    assert len(stale("sweep", last, 60.0)) == count


async def test_background_work_outlives_the_api_server_and_not_a_bug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    turns: list[Exception | None] = [Unreachable("cut"), Unreachable("cut"), None, KeyError("bug")]

    async def turn() -> None:
        error = turns.pop(0)
        if error is not None:
            raise error

    with pytest.raises(KeyError):
        await repeat("retention", turn, lambda: 0.0)
    assert [record.getMessage() for record in caplog.records] == [
        "retention does not get through, trying on: cut",
        "retention gets through again",
    ]


async def test_who_is_not_seen_is_only_absent_after_a_while_without_a_gap() -> None:
    """FI-14: 20 s of lists; an outage of the API server begins them anew."""
    seconds = 100.0
    clock = ServerClock(monotonic=lambda: seconds)
    observer = PresenceObserver()
    poller = PresencePoller(NoLeases(), observer, clock)  # type: ignore[arg-type]
    attendance = LeaseAttendance(None, poller, observer, clock)  # type: ignore[arg-type]
    told = []
    for seconds in (100.0, 110.0, 119.0, 120.0, 131.0, 141.0, 151.0):  # noqa: B007 - the clock reads it
        await attendance.refresh()
        told.append(attendance.steady())
    assert told == [False, False, False, True, False, False, True]


async def test_lists_that_fail_for_as_long_as_a_lease_leave_it_blind_and_what_it_saw_known() -> None:
    """G1: by then it sees no provider and no other operator, whoever is there."""
    seconds = 100.0
    clock = ServerClock(monotonic=lambda: seconds)
    observer = PresenceObserver()
    leases = NoLeases()
    for name in ("op-a", "op-b"):
        spec = LeaseSpec(holder_identity=name, acquire_time=clock.now(), renew_time=clock.now())
        metadata = ObjectMeta(name=name, labels={ROLE_LABEL: "operator"}, resource_version="1")
        leases.there.append(Lease(metadata=metadata, spec=spec))
    poller = PresencePoller(leases, observer, clock)  # type: ignore[arg-type]
    keeper = SimpleNamespace(name="op-a")
    attendance = LeaseAttendance(keeper, poller, observer, clock)  # type: ignore[arg-type]
    assert not attendance.blind(), "it waits for the first list before it takes a share"
    await attendance.refresh()
    for now, blind, seen in ((100.0, False, 2), (115.0, False, 1), (116.0, True, 1), (600.0, True, 1)):
        seconds = now
        assert (attendance.blind(), len(attendance.operators())) == (blind, seen)
        assert len(attendance.seen_last()) == 2
    del leases.there[1]
    await attendance.refresh()
    assert not attendance.blind()
    assert attendance.seen_last() == {"op-a"}


class NoLeases:
    def __init__(self) -> None:
        self.there: list[Lease] = []

    async def list(self, label_selector: str) -> list[Lease]:
        return list(self.there)


def test_kopf_watches_and_does_nothing_else() -> None:
    """IN-05, IN-06, WA-01, WA-04: no scanning, no posting, time limits on every watch."""
    settings = watch_settings()
    assert settings.scanning.disabled
    assert not settings.posting.enabled
    watching = settings.watching
    for limit in (watching.server_timeout, watching.client_timeout, watching.connect_timeout):
        assert limit is not None
        assert limit <= 60
    assert isinstance(watching.server_timeout, int), "the API server refuses a fraction, and the watch ends"


def test_a_watch_event_becomes_a_change() -> None:
    body: dict[str, Any] = {
        "metadata": {"name": "a", "uid": "u", "generation": 1},
        "spec": {"deploymentId": "a", "cron": "* * * * *", "timeZone": "UTC", "payload": MARKER},
    }
    there = change_of({"type": None, "object": body})
    assert there is not None
    assert there.schedule is not None
    gone = change_of({"type": "DELETED", "object": body})
    assert gone is not None
    assert gone.kind == "gone"
    odd = change_of({"type": "MODIFIED", "object": {**body, "spec": {"cron": 7, "payload": MARKER}}})
    assert odd is not None
    assert odd.schedule is None
    assert "spec.cron" in odd.unreadable
    assert MARKER not in str(odd)
    assert change_of({"type": "MODIFIED", "object": {"metadata": {"name": 7}}}) is None


@pytest.mark.parametrize("since", ["0000-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59"])
def test_a_time_that_only_the_api_server_takes_makes_an_object_unreadable(since: str) -> None:
    """An error of another kind would end the watch's handler, and the list of whoever reads it."""
    spec = {"deploymentId": "a", "cron": "* * * * *", "timeZone": "UTC", "payload": MARKER}
    body = {"metadata": {"name": "a", "uid": "u"}, "spec": {**spec, "activeSince": since}}
    odd = change_of({"type": "ADDED", "object": body})
    assert odd is not None
    assert odd.unreadable == ("spec.activeSince",)


class Kopf(Exception):  # noqa: N818 - as kopf makes them, which exports none
    def __init__(self, status: int, *arguments: object) -> None:
        super().__init__(*arguments)
        self.status = status


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            Kopf(403, "no", {"message": 'x is forbidden: User "u" cannot watch resource "x"'}),
            'HTTP 403: User "u" cannot watch resource "x"',
        ),
        (Kopf(404, "404 page not found"), "HTTP 404 NotServed"),
        (Kopf(404), "HTTP 404 NotServed"),
        (Kopf(401, "no", {"message": "Unauthorized"}), None),
        (RuntimeError("a fault of ours"), None),
    ],
)
def test_what_the_watch_is_refused_is_told_as_of_a_call_of_ours(error: Exception, told: str | None) -> None:
    """Anything else ends the watch with its trace."""
    refused = refusal(error, "space")
    path = "GET /apis/scheduler.astrabox.io/v1/namespaces/space/deploymentschedules"
    assert (str(refused) if refused else None) == (f"{path}: {told}" if told else None)


def test_kopf_gets_the_same_credentials() -> None:
    tls = Tls(ca_file="/ca", certificate_file="/cert", key_file="/key")
    endpoint = Endpoint("https://x:1", "space", "Bearer secret", tls, "f", None)
    info = connection_info(endpoint)
    assert (info.server, info.ca_path, info.scheme, info.token) == ("https://x:1", "/ca", "Bearer", "secret")
    assert (info.certificate_path, info.private_key_path, info.insecure) == ("/cert", "/key", False)


def test_the_watch_does_not_load_a_client_library_for_kopf() -> None:
    """kopf would, to recognise its objects: 1.3 s of CPU at each start and 69 MiB in each operator."""
    code = (
        "import sys, astrabox_scheduler_operator.app; assert 'kopf' in sys.modules;"
        "assert 'kubernetes_asyncio' not in sys.modules; import kubernetes_asyncio.config"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_settings_are_refused_before_kopf_is_imported() -> None:
    """Help and refusals cost no import of the framework."""
    code = "import sys, astrabox_scheduler_operator.command; sys.exit('kopf' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
