"""The few plain HTTP requests needed before, and faster than, kubectl."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from typing import Any

from tools.controlplane.commands import HOST
from tools.controlplane.errors import RequestError


def answers_ok(port: int, path: str, *, ca_file: Path | None = None, token: str = "") -> bool:
    """Whether a GET on the port of a component answers 200 within two seconds."""
    try:
        return _request("GET", port, path, ca_file=ca_file, token=token)[0] == http.client.OK
    except (OSError, http.client.HTTPException):
        return False


def post(port: int, path: str, body: dict[str, Any], *, ca_file: Path, token: str) -> dict[str, Any]:
    """Return the object the API server made of `body`; `RequestError` if it did not."""
    status, text = _request("POST", port, path, ca_file=ca_file, token=token, body=body)
    if status >= http.client.BAD_REQUEST:
        raise RequestError(path, status, text)
    answer: dict[str, Any] = json.loads(text)
    return answer


def get(port: int, path: str, *, ca_file: Path, token: str) -> dict[str, Any] | None:
    """Return an object, None where there is none; `RequestError` on any other error answer."""
    status, text = _request("GET", port, path, ca_file=ca_file, token=token)
    if status == http.client.NOT_FOUND:
        return None
    if status >= http.client.BAD_REQUEST:
        raise RequestError(path, status, text, method="GET")
    answer: dict[str, Any] = json.loads(text)
    return answer


def _request(
    method: str, port: int, path: str, *, ca_file: Path | None, token: str, body: dict[str, Any] | None = None
) -> tuple[int, str]:
    timeout = 2.0 if body is None else 30.0
    if ca_file is None:
        connection = http.client.HTTPConnection(HOST, port, timeout=timeout)
    else:
        context = ssl.create_default_context(cafile=str(ca_file))
        connection = http.client.HTTPSConnection(HOST, port, timeout=timeout, context=context)
    try:
        headers = {"Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {token}"} if token else {}
        )
        connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")
    finally:
        connection.close()
