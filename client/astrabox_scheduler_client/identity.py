"""The name of one process's life: of its Lease, and in every run that it creates or takes."""

import re
import secrets
import socket
from typing import Final

_MAX_SLUG: Final = 40


def new_identity(role: str = "", host: str | None = None) -> str:
    """A DNS label of this life of this process alone: `role`, the host's name and 32 random bits.

    At most 49 characters, so that `-2` and so on fits behind it.
    """
    name = f"{role}-{socket.gethostname() if host is None else host}"
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower(), flags=re.ASCII).strip("-")[:_MAX_SLUG].strip("-")
    return f"{slug or 'host'}-{secrets.token_hex(4)}"
