"""The one tree of errors that calls to the Kubernetes API raise, and the one place that fills it.

No text in it quotes a request or an answer: an API server repeats rejected values, and those are
AstraBox's prompts. What is kept is the status, the reason and the paths of the fields at fault.
"""

# ruff: noqa: N818 - they are the API's own names for these outcomes

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_MAX_TEXT: Final = 300
_MAX_FIELDS: Final = 5
# The two texts of a store that refuses a request for its size: etcd's own answer above 1.5 MiB and
# the limit of the API server's gRPC client above 2 MiB. Both come as status 500 without a reason.
_STORE_TOO_LARGE: Final = re.compile(r"request is too large|message larger than max", re.IGNORECASE)
_QUOTA: Final = re.compile(r"exceeded quota: .*", re.DOTALL)
_ACCESS: Final = re.compile(r"is forbidden: (User \"[^\"]*\" cannot .*)", re.DOTALL)


class ConnectError(Exception):
    """No usable configuration of the cluster: the text says what was looked for and what to do."""


class ApiError(Exception):
    """A call to the Kubernetes API that failed.

    `permanent`: repeating the same call cannot help. `of_all`: a refusal that every other object meets as
    well, and that ends without a change of any object. `status`: the HTTP status, None where no answer
    came. `reason`: Kubernetes' machine readable word, or ours. `retry_after`: seconds the server asks
    to wait. `ambiguous`: a write that may have been carried out all the same. `fields`: paths of the
    fields that were refused, without their values.
    """

    permanent: bool = False
    of_all: bool = False

    def __init__(
        self,
        text: str,
        *,
        status: int | None = None,
        reason: str = "",
        retry_after: float | None = None,
        ambiguous: bool = False,
        fields: tuple[str, ...] = (),
    ) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
        self.ambiguous = ambiguous
        self.fields = fields


class Unreachable(ApiError):
    """No answer: refused, unknown host, TLS, reset, or the time limit of the call is over."""


class Unauthorized(ApiError):
    """401 although the credentials were read again; it heals when they are replaced."""


class Forbidden(ApiError):
    """403: the role lacks a right, the namespace is being deleted, or an admission policy refuses."""

    permanent = True


class AccessDenied(Forbidden):
    """403 of the authorizer: the text names the user and the right that it lacks."""

    of_all = True


class QuotaExceeded(Forbidden):
    """403 of a ResourceQuota that is used up."""


class NotFound(ApiError):
    """404: the API server has no object of this name."""

    permanent = True


class NotServed(ApiError):
    """404 of the whole resource: the CRDs are not installed. It says nothing of any object."""

    permanent = True
    of_all = True


class AlreadyExists(ApiError):
    """409 of a create: an object of this name is there."""

    permanent = True


class Conflict(ApiError):
    """409: the object changed, or is another one, since it was read."""

    permanent = True


class Gone(ApiError):
    """410: the resource version or the list's continuation is too old; list again."""

    permanent = True


class TooLarge(ApiError):
    """The request exceeds a limit of the API server, of its store, or of a field's length."""

    permanent = True


class Invalid(ApiError):
    """The API server refuses the request for what it says (422, 400 and other 4xx)."""

    permanent = True


class TooManyRequests(ApiError):
    """429: not carried out; `retry_after` says when to come back."""


class ServerError(ApiError):
    """5xx and everything else that the server itself may get over."""


class MalformedAnswer(ApiError):
    """An answer that is whole, and is no JSON or has the wrong shape: a proxy's, or an object not as ours."""


def advice(error: ApiError) -> str:
    """What to look at where the API server could not be asked at all, or did not do its part."""
    if isinstance(error, Unreachable):
        return "check address, network policies and proxy"
    if isinstance(error, Unauthorized):
        return "the credentials are refused: check the service account or the kubeconfig"
    return "check the API server"


_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    HTTPStatus.UNAUTHORIZED: Unauthorized,
    HTTPStatus.FORBIDDEN: Forbidden,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.REQUEST_TIMEOUT: ServerError,
    HTTPStatus.CONFLICT: Conflict,
    HTTPStatus.GONE: Gone,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: TooLarge,
    HTTPStatus.TOO_MANY_REQUESTS: TooManyRequests,
}


def error_of(
    method: str, path: str, status: int, body: bytes, headers: Mapping[str, str] | None = None
) -> ApiError:
    """The error that an answer with a status other than 2xx stands for."""
    answer = _status_object(body)
    reason = _text(answer.get("reason"))
    kind, told = _kind(status, reason, answer)
    if kind is NotServed:
        reason = NotServed.__name__
    fields = _fields(answer)
    # A request that was refused for its size or its words did not reach the store.
    unsettled = kind is ServerError and status not in (HTTPStatus.CONFLICT, HTTPStatus.FORBIDDEN)
    return kind(
        _sentence(f"{method} {path}", f"HTTP {status} {reason}".rstrip(), told, ", ".join(fields)),
        status=status,
        reason=reason,
        retry_after=_seconds(headers or {}, answer),
        ambiguous=unsettled and is_write(method),
        fields=fields,
    )


def error_of_status(method: str, path: str, answer: Mapping[str, Any]) -> ApiError:
    """The error that a Status object within a successful answer stands for (an ERROR event of a watch)."""
    code = answer.get("code")
    status = code if isinstance(code, int) else int(HTTPStatus.INTERNAL_SERVER_ERROR)
    return error_of(method, path, status, json.dumps(dict(answer)).encode())


def is_write(method: str) -> bool:
    """True for a method that changes something."""
    return method in _WRITES


def _kind(status: int, reason: str, answer: Mapping[str, Any]) -> tuple[type[ApiError], str]:
    """The class, and what of the server's message can be told."""
    message = _text(answer.get("message"))
    kind: type[ApiError] | None = _BY_STATUS.get(status)
    told = ""
    if status == HTTPStatus.CONFLICT and reason == "AlreadyExists":
        kind = AlreadyExists
    elif status == HTTPStatus.CONFLICT and _details(answer).get("kind") == "resourcequotas":
        # Two creates met in the bookkeeping of a ResourceQuota; nothing is known against ours.
        kind, told = ServerError, "two requests met in a ResourceQuota"
    elif status == HTTPStatus.NOT_FOUND and not reason:
        kind = NotServed
    elif status == HTTPStatus.FORBIDDEN:
        kind, told = _forbidden(message)
    elif status == HTTPStatus.TOO_MANY_REQUESTS and "storage is (re)initializing" in message:
        told = "the API server is still preparing this resource"
    elif reason == "Expired":
        kind = Gone
    elif _STORE_TOO_LARGE.search(message) or "FieldValueTooLong" in _cause_reasons(answer):
        kind, told = TooLarge, "too large for the API server"
    if kind is None:
        kind = _by_class(status)
    return kind, told


def _by_class(status: int) -> type[ApiError]:
    if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return Invalid
    # An API server never redirects our calls: what answers with 3xx is something else.
    return ServerError if status >= HTTPStatus.INTERNAL_SERVER_ERROR else MalformedAnswer


def _forbidden(message: str) -> tuple[type[ApiError], str]:
    """These texts name users, resources and counts, never values of ours."""
    if found := _QUOTA.search(message):
        return QuotaExceeded, found[0]
    if "status unknown for quota" in message:
        return ServerError, "a ResourceQuota has not been counted yet"
    if found := _ACCESS.search(message):
        return AccessDenied, found[1]
    return Forbidden, ""


def _status_object(body: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _details(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    details = answer.get("details")
    return details if isinstance(details, dict) else {}


def _causes(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    causes = _details(answer).get("causes")
    return [each for each in causes if isinstance(each, dict)] if isinstance(causes, list) else []


def _cause_reasons(answer: Mapping[str, Any]) -> set[str]:
    return {_text(each.get("reason")) for each in _causes(answer)}


def _fields(answer: Mapping[str, Any]) -> tuple[str, ...]:
    paths = (_text(each.get("field"))[:_MAX_TEXT] for each in _causes(answer))
    return tuple(path for path in paths if path and path != "<nil>")[:_MAX_FIELDS]


def _seconds(headers: Mapping[str, str], answer: Mapping[str, Any]) -> float | None:
    for value in (headers.get("Retry-After"), _details(answer).get("retryAfterSeconds")):
        try:
            if value is not None and (seconds := float(value)) >= 0:
                return seconds
        except (TypeError, ValueError):
            continue
    return None


def _sentence(*parts: str) -> str:
    return ": ".join(part[:_MAX_TEXT] for part in parts if part)
