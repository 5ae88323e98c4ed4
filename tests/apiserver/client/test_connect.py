"""Configurations and credentials that change while they are used, on a real API server."""

import json
import logging
import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from astrabox_scheduler_client.access import Access
from astrabox_scheduler_client.api import open_api
from astrabox_scheduler_client.connect import Connection, ConnectSettings, connect
from astrabox_scheduler_client.errors import ConnectError, Unauthorized, Unreachable
from astrabox_scheduler_client.incluster import load_in_cluster
from astrabox_scheduler_client.transport import Transport
from astrabox_scheduler_crds.permissions import Permission
from astrabox_scheduler_crds.server_clock import ServerClock
from tools.controlplane import Cluster

ASKED = Permission("", "pods", "list")
Write = Callable[..., Path]


@pytest.fixture
def kubeconfig(control_plane: Cluster, tmp_path: Path) -> Write:
    """Writes a kubeconfig for the test's cluster with this user, and changes at will."""

    def write(user: dict[str, Any] | None, server: str | None = None, **context: str) -> Path:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "c",
                    "cluster": {
                        "server": server or control_plane.url,
                        "certificate-authority": str(control_plane.ca_file),
                    },
                }
            ],
            "users": [{"name": "u", "user": user}] if user is not None else [],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", **context}}],
            "current-context": "x",
        }
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(config))
        return path

    return write


@pytest.fixture
def token(control_plane: Cluster, namespace: str) -> Callable[[str], str]:
    """A service account token that dies with the Secret of this name."""
    control_plane.kubectl("create", "serviceaccount", "sa", "-n", namespace)

    def make(secret: str) -> str:
        control_plane.kubectl("create", "secret", "generic", secret, "-n", namespace)
        bound = f"--bound-object-name={secret}"
        arguments = ("create", "token", "sa", "-n", namespace, "--bound-object-kind=Secret", bound)
        return control_plane.kubectl(*arguments).strip()

    return make


@asynccontextmanager
async def asking(connection: Connection) -> AsyncIterator[Access]:
    """Something that every account may ask, and only with valid credentials."""
    try:
        yield Access(Transport(connection, ServerClock()), "default")
    finally:
        await connection.close()


async def test_a_token_file_that_was_replaced_works_at_the_next_call(
    kubeconfig: Write, token: Callable[[str], str], control_plane: Cluster, namespace: str, tmp_path: Path
) -> None:
    """WA-09: the old token is refused from then on."""
    file = tmp_path / "token"
    file.write_text(token("first") + "\n")
    connection = await connect(ConnectSettings(str(kubeconfig({"tokenFile": str(file)}))))
    # The API server remembers a good token for 10 s: so this one dies before its first use.
    control_plane.kubectl("delete", "secret", "first", "-n", namespace)
    async with asking(connection) as access:
        with pytest.raises(Unauthorized):
            await access.allowed(ASKED)
        file.write_text(token("second") + "\n")
        assert await access.allowed(ASKED) is False
        assert connection.generation == 1


async def test_an_exec_plug_in_is_asked_again(
    kubeconfig: Write, token: Callable[[str], str], tmp_path: Path
) -> None:
    """WA-10: a plug-in that hands out short-lived tokens."""
    file, plugin = tmp_path / "token", tmp_path / "plugin"
    file.write_text("not-a-token")
    plugin.write_text(
        "#!/bin/sh\n"
        'printf \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
        f'"status":{{"token":"%s"}}}}\' "$(cat {file})"\n'
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}
    async with asking(await connect(ConnectSettings(str(kubeconfig({"exec": command}))))) as access:
        with pytest.raises(Unauthorized):
            await access.allowed(ASKED)
        file.write_text(token("first"))
        assert await access.allowed(ASKED) is False


async def test_a_kubeconfig_that_was_rewritten_works_at_the_next_call(
    kubeconfig: Write, token: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    path = kubeconfig({"token": "not-a-token"})
    async with asking(await connect(ConnectSettings(str(path)))) as access:
        path.write_text("{")  # read while it is being written
        with pytest.raises(Unauthorized):
            await access.allowed(ASKED)
        assert "could not be read again" in caplog.text
        kubeconfig({"token": token("first")})
        assert await access.allowed(ASKED) is False


async def test_a_pods_token_is_read_again_before_it_is_refused(
    token: Callable[[str], str],
    control_plane: Cluster,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host, _, port = control_plane.url.removeprefix("https://").rpartition(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host.strip("[]"))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    (tmp_path / "ca.crt").write_bytes(control_plane.ca_file.read_bytes())
    (tmp_path / "token").write_text(token("first") + "\n")
    (tmp_path / "namespace").write_text(namespace)
    load = partial(load_in_cluster, tmp_path)
    connection = Connection(await load(), load, reload_seconds=0.0)
    assert (connection.namespace, connection.base_url) == (namespace, control_plane.url)
    async with asking(connection) as access:
        assert await access.allowed(ASKED) is False
        (tmp_path / "token").write_text(token("second"))
        assert await access.allowed(ASKED) is False
        assert connection.generation == 1
        (tmp_path / "token").unlink()  # the kubelet swaps files; a gap is no fault
        assert await access.allowed(ASKED) is False


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ("token", "automountServiceAccountToken"),
        ("ca.crt", "automountServiceAccountToken"),
        (None, "is empty"),
    ],
)
async def test_a_pod_without_its_files_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str | None, told: str
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    for name in ("token", "ca.crt"):
        (tmp_path / name).write_text("")
    if missing:
        (tmp_path / missing).unlink()
    with pytest.raises(ConnectError, match=told):
        await load_in_cluster(tmp_path)


async def test_an_address_of_ip_version_6_is_in_brackets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    for name in ("token", "ca.crt"):
        (tmp_path / name).write_text("x")
    endpoint = await load_in_cluster(tmp_path)
    assert (endpoint.base_url, endpoint.namespace) == ("https://[fd00::1]:443", "default")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "clusters: 1",
        "token: secret\n  : [",
        "current-context: x\ncontexts: []\nclusters: []\nusers: []",
    ],
)
async def test_a_kubeconfig_that_cannot_be_used_is_told_and_not_quoted(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(ConnectError, match="kubectl config view") as caught:
        await connect(ConnectSettings(str(path)))
    assert "secret" not in str(caught.value)


async def test_parts_of_a_kubeconfig_that_are_missing_are_told(kubeconfig: Write) -> None:
    for settings in (
        ConnectSettings(str(kubeconfig({})), "another"),
        ConnectSettings(str(kubeconfig(None))),
        ConnectSettings(str(kubeconfig({"client-certificate": "/none", "client-key": "/none"}))),
        ConnectSettings(str(kubeconfig({"exec": {"apiVersion": "v1", "command": "/none"}}))),
    ):
        with pytest.raises(ConnectError):
            await connect(settings)


async def test_a_certificate_that_is_none_is_told(kubeconfig: Write, tmp_path: Path) -> None:
    (tmp_path / "c").write_text("no PEM")
    files = {"client-certificate": str(tmp_path / "c"), "client-key": str(tmp_path / "c")}
    with pytest.raises(ConnectError, match="TLS files"):
        await connect(ConnectSettings(str(kubeconfig(files))))


async def test_without_any_configuration_it_is_told_what_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(ConnectError, match=r"KUBERNETES_SERVICE_HOST.*none.*set KUBECONFIG"):
        await connect(ConnectSettings())


async def test_the_namespace_is_the_contexts_unless_it_is_given(kubeconfig: Write) -> None:
    path = kubeconfig({"token": "t"}, namespace="theirs")
    for namespace, expected in ((None, "theirs"), ("ours", "ours")):
        api = await open_api(ConnectSettings(str(path)), namespace)
        assert api.namespace == expected
        await api.aclose()
        await api.aclose()


async def test_a_server_with_another_certificate_is_not_reached(
    control_plane: Cluster, kubeconfig: Write, tmp_path: Path
) -> None:
    path = kubeconfig({"token": "secret"})
    config = json.loads(path.read_text())
    config["clusters"][0]["cluster"]["tls-server-name"] = "somebody.else"
    path.write_text(json.dumps(config))
    async with asking(await connect(ConnectSettings(str(path)))) as access:
        with pytest.raises(Unreachable) as caught:
            await access.allowed(ASKED)
    assert not caught.value.ambiguous


def test_a_pod_does_not_pay_for_the_generated_client() -> None:
    """`import kubernetes_asyncio.config` takes seconds and tens of megabytes in AstraBox's process."""
    program = (
        "import sys, asyncio, pathlib, tempfile, os\n"
        "from astrabox_scheduler_client import api, lease_keeper, presence, confirm, incluster\n"
        "folder = pathlib.Path(tempfile.mkdtemp())\n"
        "[(folder / name).write_text('x') for name in ('token', 'ca.crt')]\n"
        "os.environ['KUBERNETES_SERVICE_HOST'] = 'h'\n"
        "asyncio.run(incluster.load_in_cluster(folder))\n"
        "assert 'kubernetes_asyncio' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env=os.environ | {"TMPDIR": "/tmp"})
