"""The name of one process's life: of its Lease, and in every run it creates."""

import re
import secrets
import socket

_MAX_HOST = 36


def new_identity(host: str | None = None) -> str:
    """A DNS label of this life of this process alone: the pod's name and a random end."""
    name = socket.gethostname() if host is None else host
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower(), flags=re.ASCII)[:_MAX_HOST].strip("-") or "host"
    return f"operator-{slug}-{secrets.token_hex(4)}"
