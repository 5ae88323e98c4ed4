import json
from collections.abc import Iterator
from typing import Any

import pytest

from astrabox_scheduler_client import errors
from astrabox_scheduler_client.errors import ApiError, error_of
from tests.unit.client.scripted import status_object

SECRET = "the prompt of somebody"

# method, status, body, (class, permanent, ambiguous)
CASES: list[tuple[str, int, Any, tuple[type[ApiError], bool, bool]]] = [
    ("GET", 400, status_object(400, "BadRequest"), (errors.Invalid, True, False)),
    ("POST", 401, status_object(401, "Unauthorized"), (errors.Unauthorized, False, False)),
    ("POST", 403, status_object(403, "Forbidden", "no"), (errors.Forbidden, True, False)),
    ("POST", 403, status_object(403, "Forbidden", 'x is forbidden: User "y" cannot create resource "x"'),
     (errors.AccessDenied, True, False)),
    ("POST", 403, status_object(403, "Forbidden", 'x "y" is forbidden: exceeded quota: q, used: 1'),
     (errors.QuotaExceeded, True, False)),
    ("POST", 403, status_object(403, "Forbidden", "status unknown for quota: q"),
     (errors.ServerError, False, False)),
    ("GET", 404, status_object(404, "NotFound"), (errors.NotFound, True, False)),
    ("GET", 404, b"404 page not found\n", (errors.NotServed, True, False)),
    ("PUT", 405, b"", (errors.Invalid, True, False)),
    ("POST", 408, b"", (errors.ServerError, False, True)),
    ("POST", 409, status_object(409, "AlreadyExists"), (errors.AlreadyExists, True, False)),
    ("PUT", 409, status_object(409, "Conflict", kind="tests"), (errors.Conflict, True, False)),
    ("POST", 409, status_object(409, "Conflict", kind="resourcequotas"), (errors.ServerError, False, False)),
    ("GET", 410, status_object(410, "Expired"), (errors.Gone, True, False)),
    ("GET", 410, status_object(410, "Gone"), (errors.Gone, True, False)),
    ("GET", 500, status_object(500, "Expired"), (errors.Gone, True, False)),
    ("POST", 413, status_object(413, "RequestEntityTooLarge"), (errors.TooLarge, True, False)),
    ("POST", 500, status_object(500, "", "etcdserver: request is too large"), (errors.TooLarge, True, False)),
    ("POST", 500, status_object(500, "", "rpc error: code = ResourceExhausted desc = trying to send message"
     " larger than max (2200331 vs. 2097152)"), (errors.TooLarge, True, False)),
    ("POST", 422, status_object(422, "Invalid", causes=[{"reason": "FieldValueTooLong", "field": "spec.p"}]),
     (errors.TooLarge, True, False)),
    ("POST", 422, status_object(422, "Invalid", causes=[{"reason": "FieldValueInvalid", "field": "spec.p"}]),
     (errors.Invalid, True, False)),
    ("POST", 429, status_object(429, "TooManyRequests", retryAfterSeconds=3),
     (errors.TooManyRequests, False, False)),
    ("POST", 500, status_object(500, "InternalError"), (errors.ServerError, False, True)),
    ("GET", 500, status_object(500, "InternalError"), (errors.ServerError, False, False)),
    ("DELETE", 503, b"<html>", (errors.ServerError, False, True)),
    ("PATCH", 504, b"", (errors.ServerError, False, True)),
    ("GET", 302, b"", (errors.MalformedAnswer, False, False)),
]  # fmt: skip


@pytest.mark.parametrize(("method", "status", "body", "expected"), CASES)
def test_an_answer_is_exactly_one_error(
    method: str, status: int, body: Any, expected: tuple[type[ApiError], bool, bool]
) -> None:
    error = error_of(method, "/p", status, body if isinstance(body, bytes) else json.dumps(body).encode())
    assert (type(error), error.permanent, error.ambiguous) == expected
    assert error.status == status


def leaves(kind: type[ApiError]) -> Iterator[type[ApiError]]:
    yield from [kind] if kind is not ApiError else []
    for child in kind.__subclasses__():
        yield from leaves(child)


def test_every_class_of_error_is_in_the_table_or_comes_without_an_answer() -> None:
    assert set(leaves(ApiError)) - {case[3][0] for case in CASES} == {errors.Unreachable}


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"details": 1, "message": [], "reason": {}}', b"\xff"])
def test_every_status_has_a_class_of_its_own_whatever_the_body(body: bytes) -> None:
    for status in (*range(300, 600), 600, 999):
        error = error_of("POST", "/p", status, body)
        assert (type(error) is not ApiError, error.status) == (True, status)


def test_an_unserved_resource_is_told_from_an_absent_object() -> None:
    assert error_of("GET", "/p", 404, b"404 page not found").reason == "NotServed"
    assert (
        error_of("GET", "/p", 404, json.dumps(status_object(404, "NotFound")).encode()).reason == "NotFound"
    )


@pytest.mark.parametrize("status", [400, 403, 404, 409, 413, 422, 429, 500, 503])
def test_no_error_quotes_what_was_sent(status: int) -> None:
    told = {"reason": "FieldValueInvalid", "message": f'Invalid value: "{SECRET}"'}
    causes = [told | {"field": field} for field in ("<nil>", "spec.payload")]
    body = status_object(status, "Some", f"denied: {SECRET}: request is too large", name="n", causes=causes)
    error = error_of("POST", "/p", status, json.dumps(body).encode())
    assert SECRET not in repr(error) + str(vars(error))
    assert error.fields == ("spec.payload",)


def test_the_right_that_is_missing_and_the_quota_that_is_used_up_are_told() -> None:
    told = (
        'runs.x is forbidden: User "system:serviceaccount:a:b" cannot create resource "runs" in API group "x"'
    )
    error = error_of("POST", "/p", 403, json.dumps(status_object(403, "Forbidden", told)).encode())
    assert 'User "system:serviceaccount:a:b" cannot create resource "runs"' in str(error)
    full = "x is forbidden: exceeded quota: runs, requested: count/x=1, used: count/x=3, limited: count/x=3"
    error = error_of("POST", "/p", 403, json.dumps(status_object(403, "Forbidden", full)).encode())
    assert "exceeded quota: runs, requested: count/x=1, used: count/x=3, limited: count/x=3" in str(error)


def test_a_definition_that_was_just_installed_is_told() -> None:
    body = status_object(429, "TooManyRequests", "storage is (re)initializing")
    assert "still preparing this resource" in str(error_of("GET", "/p", 429, json.dumps(body).encode()))


def test_a_text_is_bounded() -> None:
    causes = [{"reason": "FieldValueInvalid", "field": "f" * 5000}] * 50
    body = status_object(422, "R" * 5000, "exceeded quota: " + "q" * 5000, causes=causes)
    assert len(str(error_of("POST", "/" + "p" * 5000, 422, json.dumps(body).encode()))) < 1500


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [({"Retry-After": "2"}, 2.0), ({"Retry-After": "soon"}, 5.0), ({}, 5.0), ({"Retry-After": "-1"}, 5.0)],
)
def test_retry_after_is_the_headers_or_the_bodys(headers: dict[str, str], seconds: float) -> None:
    body = json.dumps(status_object(429, "TooManyRequests", retryAfterSeconds=5)).encode()
    assert error_of("GET", "/p", 429, body, headers).retry_after == seconds
