"""Kubeconfig files, and the certificate authority they trust."""

from __future__ import annotations

import os
import re
from pathlib import Path

import yaml


def write_kubeconfig(
    path: Path, *, url: str, ca: Path, token: str, context: str, namespace: str = "default"
) -> None:
    """Write a kubeconfig with one context.

    It names the file of the certificate authority: a client writes data that stands in a kubeconfig
    to a temporary file, which stays behind when the client is killed.
    """
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": context, "cluster": {"server": url, "certificate-authority": str(ca.resolve())}}
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


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
