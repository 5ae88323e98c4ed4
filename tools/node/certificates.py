"""The certificates of a node's API server: its own, and the one by which kubelets know it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

_DAYS = "30"


def make_certificates(folder: Path, addresses: Sequence[str]) -> None:
    """Write `ca.crt`, `apiserver.crt` (the authority after it) and `kubelet-client.crt`, with their keys.

    `addresses` are those that clients use. The keys are elliptic ones in a form that the API server can also
    sign service account tokens with.
    """
    folder.mkdir(mode=0o700)
    (folder / "openssl.conf").write_text("[req]\ndistinguished_name = name\n[name]\n")
    _certificate(
        folder, "ca", "/CN=astrabox-node", ["basicConstraints=critical,CA:TRUE", "keyUsage=keyCertSign"]
    )
    names = [f"IP:{address}" for address in addresses]
    names += ["DNS:localhost", "DNS:kubernetes", "DNS:kubernetes.default", "DNS:kubernetes.default.svc"]
    serving = [f"subjectAltName={','.join(names)}", "extendedKeyUsage=serverAuth"]
    _certificate(folder, "apiserver", "/CN=kube-apiserver", serving, authority="ca")
    _certificate(
        folder,
        "kubelet-client",
        "/O=system:masters/CN=kube-apiserver",
        ["extendedKeyUsage=clientAuth"],
        authority="ca",
    )
    with (folder / "apiserver.crt").open("a") as chain:
        chain.write((folder / "ca.crt").read_text())


def _certificate(
    folder: Path, name: str, subject: str, extensions: Sequence[str], *, authority: str = ""
) -> None:
    key = str(folder / f"{name}.key")
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
    by = ["-CA", str(folder / f"{authority}.crt"), "-CAkey", str(folder / f"{authority}.key")]
    _openssl(
        *("req", "-x509", "-new", "-sha256", "-days", _DAYS, "-config", str(folder / "openssl.conf")),
        *("-key", key, "-subj", subject, "-out", str(folder / f"{name}.crt")),
        *(by if authority else []),
        *(argument for extension in extensions for argument in ("-addext", extension)),
    )


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
