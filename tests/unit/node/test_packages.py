from __future__ import annotations

from pathlib import Path

import pytest

from tools.node import __main__ as command
from tools.node.packages import BUILD, CNI, RUN, machine_complaint, missing_packages


def test_every_package_is_missing_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        "tools.node.packages.RUN", {**RUN, "containernetworking-plugins": str(tmp_path / "ptp")}
    )
    assert set(missing_packages(str(tmp_path))) == {*RUN, *BUILD}


def test_a_program_counts_whoever_brought_it(tmp_path: Path) -> None:
    for program in (*RUN.values(), *BUILD.values()):
        if not program.startswith(str(CNI)):
            (tmp_path / program).touch(0o755)
    assert set(missing_packages(str(tmp_path))) <= {"containernetworking-plugins"}


@pytest.mark.parametrize(
    ("platform", "user", "missing", "said"),
    [
        ("darwin", 0, [], "needs Linux"),
        ("linux", 1000, [], "needs root"),
        ("linux", 0, ["runc", "buildah"], "apt-get install --no-install-recommends runc buildah"),
        ("linux", 1000, ["runc"], "needs root"),
    ],
)
def test_a_machine_that_cannot_run_a_node_is_told_why(
    platform: str, user: int, missing: list[str], said: str
) -> None:
    assert said in machine_complaint(platform, user, missing)


def test_a_machine_with_all_of_it_is_not_complained_about() -> None:
    assert machine_complaint("linux", 0, []) == ""


def test_missing_packages_are_printed_for_apt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "missing_packages", lambda: ["runc", "buildah"])
    assert command.main(["packages"]) == 0
    assert capsys.readouterr().out == "runc\nbuildah\n"


@pytest.mark.parametrize("given", [["check"], ["down"], ["load", "image.tar"]])
def test_a_user_without_rights_is_told_so_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: list[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert command.main(given) == 1
    assert "needs root" in capsys.readouterr().err
