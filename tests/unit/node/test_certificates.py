from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from tools.controlplane.kubeconfig import certificate_authority
from tools.node.certificates import make_certificates

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_certificates(tmp_path / "certs", ["127.0.0.1", "10.96.0.1"])
    return tmp_path / "certs"


def said(*arguments: str) -> str:
    return subprocess.run(["openssl", *arguments], check=True, capture_output=True, text=True).stdout


def test_the_chain_ends_with_the_authority_that_clients_trust(folder: Path) -> None:
    authority = (folder / "ca.crt").read_text()
    assert certificate_authority((folder / "apiserver.crt").read_text()) == authority
    for name in ("apiserver", "kubelet-client"):
        assert "OK" in said("verify", "-CAfile", str(folder / "ca.crt"), str(folder / f"{name}.crt"))
        ssl.create_default_context().load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")


def test_the_server_is_known_by_all_its_addresses(folder: Path) -> None:
    text = said("x509", "-in", str(folder / "apiserver.crt"), "-noout", "-ext", "subjectAltName")
    for name in ("127.0.0.1", "10.96.0.1", "DNS:localhost", "DNS:kubernetes.default.svc"):
        assert name in text


def test_keys_are_private_and_can_sign_tokens(folder: Path) -> None:
    assert folder.stat().st_mode & 0o077 == 0
    assert (folder / "apiserver.key").read_text().startswith("-----BEGIN EC PRIVATE KEY-----")
