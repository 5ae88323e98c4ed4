"""Answers that a real API server gives when it is overloaded (429) or when a part of it fails (500)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from tests.faults.stage.admin import SCHEDULER_API, Admin
from tests.faults.stage.identities import Identities
from tests.webhooks import away

_FLOW = "/apis/flowcontrol.apiserver.k8s.io/v1"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_TAKES_EFFECT_SECONDS = 20.0
_BUSY_WITHIN_SECONDS = 60.0
_KEEPERS = 4
"""The API server may round the concurrency of a level without a share up, and others want it as well."""
_TOO_MANY = HTTPStatus.TOO_MANY_REQUESTS
_BUSY = "busy"
_PRECEDENCE = 2  # before every FlowSchema that the API server comes with but that of the exempt


@dataclass(frozen=True, slots=True)
class Question:
    """A request that shows whether the API server refuses by now."""

    method: str
    path: str
    token: str
    body: Mapping[str, Any] | None = None


@asynccontextmanager
async def too_many_requests(
    admin: Admin, identities: Identities, namespace: str, names: Sequence[str]
) -> AsyncIterator[None]:
    """The API server has no share of its concurrency for these processes and rejects all they ask.

    A level without a share still serves one request at a time, so somebody else has to be in it.
    """
    name = f"none-{namespace}"
    await identities.folder(_BUSY, "host")
    path = f"{SCHEDULER_API}/namespaces/{namespace}/runinvocations"
    asked = [Question("GET", path, identities.token(each)) for each in names]
    async with AsyncExitStack() as stack:
        stack.push_async_callback(_accepted_again, admin, name, asked)
        await admin.create(f"{_FLOW}/prioritylevelconfigurations", _level(name))
        await admin.create(f"{_FLOW}/flowschemas", _flow(name, namespace, [_BUSY, *names]))
        await stack.enter_async_context(_busy(admin, identities.token(_BUSY), asked[0]))
        for question in asked:
            await _until(admin, _TOO_MANY, question)
        yield


async def _accepted_again(admin: Admin, name: str, asked: Sequence[Question]) -> None:
    await admin.delete(f"{_FLOW}/flowschemas/{name}")
    await admin.delete(f"{_FLOW}/prioritylevelconfigurations/{name}")
    for question in asked:
        await _until(admin, _TOO_MANY, question, wanted=False)


@asynccontextmanager
async def _busy(admin: Admin, token: str, question: Question) -> AsyncIterator[None]:
    """Keep the places that there are taken. A request older than the FlowSchema is elsewhere.

    One refusal does not tell: for a moment any of the others may have had the place.
    """
    deadline = time.monotonic() + _BUSY_WITHIN_SECONDS
    while True:
        busy = [asyncio.create_task(_keep_busy(admin, token)) for _ in range(_KEEPERS)]
        try:
            await _until(admin, _TOO_MANY, question, within=4.0, in_a_row=10)
            break
        except TimeoutError:
            await _cancelled(busy)
            if time.monotonic() > deadline:
                raise
    try:
        yield
    finally:
        await _cancelled(busy)


async def _cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _level(name: str) -> dict[str, Any]:
    limited = {
        "nominalConcurrencyShares": 0,
        "lendablePercent": 0,
        "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Reject"},
    }
    return {"metadata": {"name": name}, "spec": {"type": "Limited", "limited": limited}}


def _flow(name: str, namespace: str, names: Sequence[str]) -> dict[str, Any]:
    """Lead every request of these processes to the level of this name."""
    resources = {
        "verbs": ["*"],
        "apiGroups": ["*"],
        "resources": ["*"],
        "namespaces": ["*"],
        "clusterScope": True,
    }
    rule = {
        "subjects": [
            {"kind": "ServiceAccount", "serviceAccount": {"name": each, "namespace": namespace}}
            for each in names
        ],
        "resourceRules": [resources],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }
    spec = {
        "priorityLevelConfiguration": {"name": name},
        "matchingPrecedence": _PRECEDENCE,
        "rules": [rule],
    }
    return {"metadata": {"name": name}, "spec": spec}


async def _keep_busy(admin: Admin, token: str) -> None:
    """Send a request whose body never comes to its end, again whenever the API server gives up on it."""
    address = urlsplit(admin.url)
    head = (
        f"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews HTTP/1.1\r\nHost: {address.netloc}\r\n"
        f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{"
    )
    while True:
        writer: asyncio.StreamWriter | None = None
        try:
            reader, writer = await asyncio.open_connection(
                address.hostname, address.port, ssl=admin.tls, server_hostname=address.hostname
            )
            writer.write(head.encode())
            await reader.read(1)
        except OSError:
            await asyncio.sleep(0.05)
        finally:
            if writer is not None:
                writer.transport.abort()
        await asyncio.sleep(0.01)


@asynccontextmanager
async def internal_errors(
    admin: Admin, identities: Identities, namespace: str, names: Sequence[str]
) -> AsyncIterator[None]:
    """Every write of these processes to our resources fails with 500: its admission webhook is away."""
    name = f"away-{namespace}.astrabox.test"
    resources = [
        f"{plural}{sub}" for plural in ("deploymentschedules", "runinvocations") for sub in ("", "/status")
    ]
    rule = {
        "apiGroups": ["scheduler.astrabox.io"],
        "apiVersions": ["*"],
        "operations": ["*"],
        "resources": resources,
        "scope": "Namespaced",
    }
    these = {"name": "these", "expression": f"request.userInfo.username in {identities.users(names)!r}"}
    webhook = away(name, namespace, rule) | {"matchConditions": [these]}
    path = f"{SCHEDULER_API}/namespaces/{namespace}/runinvocations?dryRun=All"
    question = Question("POST", path, identities.token(names[0]), _PROBE)
    try:
        await admin.create(_WEBHOOKS, {"metadata": {"name": name}, "webhooks": [webhook]})
        await _until(admin, HTTPStatus.INTERNAL_SERVER_ERROR, question)
        yield
    finally:
        await admin.delete(f"{_WEBHOOKS}/{name}")
        await _until(admin, HTTPStatus.INTERNAL_SERVER_ERROR, question, wanted=False)


_PROBE = {
    "apiVersion": "scheduler.astrabox.io/v1",
    "kind": "RunInvocation",
    "metadata": {"generateName": "probe-"},
    "spec": {"deploymentId": "probe", "trigger": "manual", "payload": "{}"},
}


async def _until(
    admin: Admin,
    code: HTTPStatus,
    question: Question,
    *,
    wanted: bool = True,
    within: float = _TAKES_EFFECT_SECONDS,
    in_a_row: int = 1,
) -> None:
    """Ask until the answer has this code, or another one, so many times in a row."""
    deadline, seen = time.monotonic() + within, 0
    answered: int | str = "nothing"
    while time.monotonic() < deadline:
        try:
            answered = await admin.status(question.method, question.path, question.body, token=question.token)
        except (aiohttp.ClientError, TimeoutError) as error:
            answered = type(error).__name__
        seen = seen + 1 if isinstance(answered, int) and (answered == code) is wanted else 0
        if seen == in_a_row:
            return
        await asyncio.sleep(0.1)
    raise TimeoutError(f"the API server answers {answered} after {within:g} s")
