"""The payload comes back equal, value for value and type for type, through a whole object."""

import contextlib
import json
import re
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.payload import PayloadError, decode_payload, encode_payload
from astrabox_scheduler_crds.run import RunInvocation, RunSpec

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
JOINED = re.compile("[\ud800-\udbff][\udc00-\udfff]")
TEXT = st.text(st.characters()).filter(lambda text: not JOINED.search(text))  # lone surrogates too
VALUES = st.recursive(
    st.one_of(SCALARS, TEXT),
    lambda child: st.one_of(st.lists(child, max_size=4), st.dictionaries(TEXT, child, max_size=4)),
    max_leaves=12,
)
PAYLOADS = st.dictionaries(TEXT, VALUES, max_size=5)


def exact(value: Any) -> str:
    """Text that tells types, order and the sign of zero apart."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{exact(child)}" for key, child in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(exact, value)) + "]"
    return f"{type(value).__name__}:{value!r}"


@given(PAYLOADS)
@example({"a": 1.0, "b": 1, "c": True, "d": -0.0, "e": 10**40})
@example({"\ud800": "\udfff", "z": "", "a": "日报\0"})
def test_round_trip_through_an_object(payload: dict[str, Any]) -> None:
    spec = RunSpec(deployment_id="d", payload=encode_payload(payload))
    stored = RunInvocation(metadata=ObjectMeta(name="n"), spec=spec).to_json()
    # What an API server does with it: parse and write again.
    rewritten = json.dumps(json.loads(stored)).encode()
    assert exact(decode_payload(RunInvocation.from_json(rewritten).spec.payload)) == exact(payload)


NOT_JSON = st.one_of(
    st.just(float("nan")),
    st.just(float("inf")),
    st.tuples(st.integers()),
    st.binary(),
    st.sets(st.integers()),
)


@given(PAYLOADS, NOT_JSON)
def test_what_json_does_not_carry_is_refused_and_not_quoted(payload: dict[str, Any], other: object) -> None:
    with pytest.raises(PayloadError) as caught:
        encode_payload({**payload, "secret-key": [other]})
    assert "secret-key" not in str(caught.value)


@pytest.mark.parametrize("payload", [{"a": "\ud83d\ude00"}, {"\ud83d\ude00": 1}, {"a": ["x\ud800\udc00"]}])
def test_what_would_come_back_as_another_text_is_refused(payload: dict[str, Any]) -> None:
    """JSON's escapes of both halves of a character are that character."""
    with pytest.raises(PayloadError, match="surrogates"):
        encode_payload(payload)


def test_a_payload_within_itself_is_refused() -> None:
    """It would have no end, in the event loop of AstraBox."""
    payload: dict[str, Any] = {"list": []}
    payload["list"].append(payload)
    nested: dict[str, Any] = {}
    for _ in range(100_000):
        nested = {"n": nested}
    for bad in (payload, {"m": MappingProxyType(payload)}, nested):
        with pytest.raises(PayloadError):
            encode_payload(bad)


@given(st.text())
@example("[1]")
@example("{")
@example("[" * 100_000)
def test_stored_text_is_an_object_or_our_own_error(text: str) -> None:
    with contextlib.suppress(PayloadError):
        assert isinstance(decode_payload(text), dict)
