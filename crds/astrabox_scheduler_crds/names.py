"""Names of objects. They carry the once-only guarantee, so two different things never share one.

A deployment id that is a DNS label of at most 40 characters is its own key. Any other id becomes
`<slug>.<digest>` with 128 bits of SHA-256: a `.` cannot occur in a DNS label, so the two kinds
never meet, and two ids cannot be crafted to share a digest.

Run names, with the key first and a suffix of fixed length, so that a name has one reading only:

* scheduled: `<key>-<YYYYMMDD>t<HHMM>z`, a pure function of deployment and UTC due time
* manual and replay: `<key>-<YYYYMMDD>t<HHMMSSmmm>z-<8 characters>`, sorted by time

All are at most 63 characters for scheduled runs, and valid label values.
"""

import base64
import hashlib
import re
from datetime import UTC, datetime

MAX_KEY_LENGTH = 40
MAX_NAME_LENGTH = 253
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_DNS_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?", re.ASCII)
_SCHEDULED = re.compile(r"(?P<key>.+)-(?P<due>[0-9]{8}t[0-9]{4}z)", re.ASCII)
_DUE_FORMAT = "%Y%m%dt%H%Mz"
_DIGEST_CHARACTERS = 26
TOKEN_CHARACTERS = 8


def is_object_name(text: str) -> bool:
    """Whether an object of ours can have this name (RFC 1123 subdomain)."""
    return len(text) <= MAX_NAME_LENGTH and _SUBDOMAIN.fullmatch(text) is not None


def deployment_key(deployment_id: str) -> str:
    """The key of any AstraBox Deployment id: its schedule's name, and how its runs' names begin."""
    if _DNS_LABEL.fullmatch(deployment_id):
        return deployment_id
    digest = hashlib.sha256(deployment_id.encode("utf-8", "surrogatepass")).digest()[:16]
    text = base64.b32encode(digest).decode().rstrip("=").lower()
    slug = re.sub(r"[^a-z0-9]+", "-", deployment_id.lower()[:200], flags=re.ASCII).strip("-")
    slug = slug[: MAX_KEY_LENGTH - _DIGEST_CHARACTERS - 1].strip("-") or "id"
    return f"{slug}.{text}"


def scheduled_run_name(key: str, due: datetime) -> str:
    """The name of the run of `key` at the aware datetime `due`, a whole minute.

    Raises ValueError for a naive or a not whole due time: its name would stand for another one.
    """
    if due.tzinfo is None or due.second or due.microsecond:
        raise ValueError(f"a due time is a whole minute with a zone, not {due.isoformat()}")
    due = due.astimezone(UTC)
    return f"{key}-{due:%Y%m%d}t{due:%H%M}z"


def parse_scheduled_run_name(name: str) -> tuple[str, datetime] | None:
    """Key and UTC due time of a scheduled run's name, None for any other name."""
    match = _SCHEDULED.fullmatch(name)
    if match is None:
        return None
    try:
        due = datetime.strptime(match["due"], _DUE_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None
    return match["key"], due


def requested_run_name(key: str, now: datetime, token: str) -> str:
    """The name of a manual or replay run asked for at the aware datetime `now`.

    `token` is 8 random characters of a-z and 2-7, so that two requests in one millisecond differ.
    """
    if len(token) != TOKEN_CHARACTERS or not re.fullmatch(r"[a-z2-7]+", token, re.ASCII):
        raise ValueError("a token is 8 characters of a-z and 2-7")
    now = now.astimezone(UTC)
    return f"{key}-{now:%Y%m%dt%H%M%S}{now.microsecond // 1000:03d}z-{token}"
