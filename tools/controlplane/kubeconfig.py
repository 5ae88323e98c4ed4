"""Kubeconfig files that need no other file, and the certificate authority they trust."""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path

import yaml


def write_kubeconfig(
    path: Path, *, url: str, ca: Path, token: str, context: str, namespace: str = "default"
) -> None:
    """Write a kubeconfig with one context that needs no other file."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": context, "cluster": {"server": url, "certificate-authority-data": _base64(ca)}}
        ],
        "users": [{"name": context, "user": {"token": token}}],
        "contexts": [
            {"name": context, "context": {"cluster": context, "user": context, "namespace": namespace}}
        ],
        "current-context": context,
    }
    write_private(path, yaml.safe_dump(content, sort_keys=False))


def certificate_authority(pem: str) -> str | None:
    """Return the last certificate of a complete chain, or None while the file is still being written."""
    blocks = re.findall(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n", pem, re.DOTALL)
    return str(blocks[-1]) if len(blocks) > 1 else None


def _base64(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
