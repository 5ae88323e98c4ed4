"""AstraBox's payload as one string of JSON text.

As a structured field it would not be verbatim: the API server writes `1.0` back as `1` and drops
the order of keys. Text keeps both and needs no schema.
"""

import json
from collections.abc import Mapping
from typing import Any


class PayloadError(ValueError):
    """The payload is not a JSON object that comes back equal to what was given."""


class PayloadTooDeepError(PayloadError):
    """It is nested too deeply for the Python that reads it; another version may read it."""


def encode_payload(payload: Mapping[str, Any]) -> str:
    """JSON text that `decode_payload` turns into an equal value.

    Raises PayloadError, without quoting the payload, for values that JSON does not carry (a tuple,
    a key that is no string, NaN).
    """
    try:
        text = _dumps(payload, ensure_ascii=False)
        # A lone surrogate is legal in a Python str and in JSON's \u escapes, but not in UTF-8.
        escaped = not _is_utf8(text)
        text = _dumps(payload, ensure_ascii=True) if escaped else text
    except (TypeError, ValueError, RecursionError):
        raise PayloadError(
            "the payload is not JSON, has a number that is not finite, or is nested too deeply or in itself"
        ) from None
    if not _is_json(payload):
        raise PayloadError(
            "the payload is not JSON: use objects with text as keys, lists, text, numbers, booleans, null"
        )
    if escaped and decode_payload(text) != payload:
        raise PayloadError(
            "the payload has two halves of a character (surrogates) side by side, which JSON joins to one"
        )
    return text


def decode_payload(text: str) -> dict[str, Any]:
    """The value of stored payload text; raises PayloadError where it is no JSON object."""
    try:
        value = json.loads(text)
    except ValueError:
        raise PayloadError("the stored payload is not JSON") from None
    except RecursionError:
        raise PayloadTooDeepError("the stored payload is nested too deeply to be read here") from None
    if not isinstance(value, dict):
        raise PayloadError("the stored payload is not a JSON object")
    return value


def _dumps(payload: Mapping[str, Any], *, ensure_ascii: bool) -> str:
    return json.dumps(
        payload, ensure_ascii=ensure_ascii, allow_nan=False, separators=(",", ":"), default=dict
    )


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_json(payload: Any) -> bool:
    """Whether it consists of JSON's own types only, which come back the same. It must not contain itself."""
    pending: list[Any] = [payload]
    while pending:
        value = pending.pop()
        if isinstance(value, Mapping):
            if any(type(key) is not str for key in value):
                return False
            pending.extend(value.values())
        elif type(value) is list:
            pending.extend(value)
        elif value is not None and type(value) not in (str, int, float, bool):
            return False
    return True
