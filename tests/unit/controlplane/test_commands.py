from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tools.controlplane.commands import Ports, apiserver_command, etcd_command, free_ports
from tools.controlplane.kubeconfig import certificate_authority, write_kubeconfig

PORTS = Ports(1, 2, 3)
BLOCK = "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n"


def test_three_different_ports_are_chosen() -> None:
    ports = free_ports()
    assert len({ports.apiserver, ports.etcd, ports.etcd_peer}) == 3


def test_nothing_listens_beyond_this_machine() -> None:
    command = etcd_command(Path("etcd"), Path("/d"), PORTS, fsync=False)
    command += apiserver_command(Path("kube-apiserver"), Path("/d"), PORTS)
    assert "--bind-address=127.0.0.1" in command
    assert all("127.0.0.1" in flag for flag in command if "http" in flag and "issuer" not in flag)


@pytest.mark.parametrize("fsync", [True, False])
def test_fsync_is_a_choice(*, fsync: bool) -> None:
    assert ("--unsafe-no-fsync" in etcd_command(Path("e"), Path("/d"), PORTS, fsync=fsync)) is not fsync


def test_flags_of_the_caller_come_last_so_that_they_win() -> None:
    command = apiserver_command(Path("a"), Path("/d"), PORTS, ["--authorization-mode=AlwaysAllow"])
    assert command[-1] == "--authorization-mode=AlwaysAllow"
    assert "--authorization-mode=Node,RBAC" in command[:-1]


def test_the_authority_is_the_last_certificate_of_a_complete_file() -> None:
    chain = BLOCK.format("serving") + BLOCK.format("authority")
    assert certificate_authority(chain) == BLOCK.format("authority")
    for length in range(len(chain)):
        assert certificate_authority(chain[:length]) is None


def test_a_kubeconfig_names_the_authority_and_is_private(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("ca")
    path = tmp_path / "config"
    write_kubeconfig(path, url="https://x:1", ca=tmp_path / "ca", token="t", context="astrabox-test")
    content = yaml.safe_load(path.read_text())
    assert content["current-context"] == content["contexts"][0]["name"] == "astrabox-test"
    assert content["clusters"][0]["cluster"] == {
        "server": "https://x:1",
        "certificate-authority": str(tmp_path / "ca"),
    }
    assert path.stat().st_mode & 0o777 == 0o600
