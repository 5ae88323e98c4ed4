"""However the caller of a control plane ends, nothing of it stays. `sleep` stands in for the components."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.controlplane.errors import StartError
from tools.controlplane.processes import Processes

CALLER = """
import os, signal, sys, time
from tools.controlplane.processes import Processes
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started us with it ignored,
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and nohup with this one
processes = Processes()
processes.start("one", ["sleep", "600"])
processes.start("two", ["sh", "-c", "trap '' TERM INT; exec sleep 600"])
{extra}
print(processes.directory, processes.keeper_pid, *processes.pids.values(), flush=True)
time.sleep(600)
"""
FORK = "if os.fork() == 0: time.sleep(3); os._exit(0)"  # holds the pipe to the keeper open
CRASH = "import threading; threading.Timer(0.3, os._exit, [3]).start()"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def processes(folder: Path) -> Iterator[Processes]:
    made = Processes()
    yield made
    made.close()


def running(pid: int) -> bool:
    """Whether it runs; an orphan that has ended may wait a while to be reaped by process 1."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_gone(*pids: int) -> None:
    deadline = time.monotonic() + 5
    while any(running(pid) for pid in pids):
        assert time.monotonic() < deadline, [pid for pid in pids if running(pid)]
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("extra", "number"),
    [
        ("", signal.SIGINT),
        ("", signal.SIGTERM),
        ("", signal.SIGHUP),
        ("", signal.SIGKILL),
        (FORK, signal.SIGKILL),
        (CRASH, None),
    ],
    ids=["ctrl-c", "term", "hangup", "kill", "kill with a forked child", "exit without cleanup"],
)
def test_all_ends_with_the_caller(folder: Path, extra: str, number: signal.Signals | None) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CALLER.format(extra=extra)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as caller:
        assert caller.stdout is not None
        directory, *pids = caller.stdout.readline().split()
        assert Path(directory).parent == folder
        assert all(running(int(pid)) for pid in pids)
        if number is not None:
            caller.send_signal(number)
        wait_until_gone(*map(int, pids))
        assert not list(folder.iterdir())


def test_components_die_with_their_keeper(processes: Processes) -> None:
    pid = processes.start("one", ["sleep", "600"])
    os.kill(processes.keeper_pid, signal.SIGKILL)
    wait_until_gone(pid)
    with pytest.raises(StartError):
        processes.exited()


def test_a_polite_end_of_the_keeper_cleans_up(processes: Processes, folder: Path) -> None:
    pid = processes.start("one", ["sleep", "600"])
    os.kill(processes.keeper_pid, signal.SIGTERM)
    wait_until_gone(pid)
    processes.close()
    assert not list(folder.iterdir())


def test_components_outlive_the_thread_that_started_them(processes: Processes) -> None:
    thread = threading.Thread(target=lambda: processes.start("one", ["sleep", "600"]))
    thread.start()
    thread.join()
    time.sleep(0.1)
    assert running(processes.pids["one"])
    assert processes.exited() == {}


def test_close_ends_all_and_may_be_called_again(processes: Processes, folder: Path) -> None:
    pids = [processes.start(name, ["sleep", "600"]) for name in ("one", "two")]
    processes.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in (*pids, processes.keeper_pid))  # no zombie either
    assert not list(folder.iterdir())
    processes.close()
    with pytest.raises(StartError, match="has been stopped"):
        processes.start("one", ["sleep", "600"])


def test_an_end_that_was_asked_for_is_not_reported(processes: Processes) -> None:
    processes.start("one", ["sleep", "600"])
    processes.kill("one", signal.SIGTERM)
    assert processes.exited() == {}
    assert processes.pids == {}
    with pytest.raises(StartError, match="one is not running"):
        processes.kill("one", signal.SIGTERM)
    processes.start("one", ["false"])
    while not (ended := processes.exited()):
        time.sleep(0.01)
    assert ended == {"one": 1}


def test_output_goes_to_a_log(processes: Processes) -> None:
    processes.start("one", ["sh", "-c", "echo first; echo second >&2"])
    while not processes.exited():
        time.sleep(0.01)
    assert processes.log_tail("one", 1) == "  second"
    assert processes.log_tail("none") == "  (no log)"


def test_a_missing_program_is_an_error_of_its_own(processes: Processes) -> None:
    with pytest.raises(StartError, match="No such file"):
        processes.start("one", ["/no/such/program"])
    processes.start("one", ["sleep", "600"])
    with pytest.raises(StartError, match="one is running already"):
        processes.start("one", ["sleep", "600"])


def test_a_broken_program_is_an_error_that_says_what_to_do(processes: Processes, folder: Path) -> None:
    broken = folder / "broken"
    broken.write_bytes(b"\0")
    broken.chmod(0o755)
    with pytest.raises(StartError, match=r"Exec format error\nIs it whole.*tools.controlplane build"):
        processes.start("one", [str(broken)])


def test_a_signal_does_not_wait_and_ends_are_told_with_their_time(processes: Processes) -> None:
    for name in ("one", "two"):
        processes.start(name, ["sleep", "600"], {"PATH": os.environ["PATH"]})
    pids = dict(processes.pids)
    processes.signal("one", signal.SIGSTOP)
    processes.signal("one", signal.SIGCONT)
    assert processes.ends() == []
    sent = time.time()
    processes.signal("one", signal.SIGKILL)
    time.sleep(0.3)  # asked late: the time is that of the end all the same
    (end,) = processes.ends()
    assert (end.name, end.pid, end.code) == ("one", pids["one"], -signal.SIGKILL)
    assert end.at - sent < 0.1
    processes.kill("two", signal.SIGTERM)
    assert [each.name for each in processes.ends(after=1)] == ["two"]
    processes.start("one", ["env"], {"ONLY": "this"})
    wait_until_gone(processes.pids["one"])
    assert processes.log("one").read_text() == "ONLY=this\n"


def test_what_was_never_started_cannot_be_signalled(processes: Processes) -> None:
    with pytest.raises(StartError, match="is not running"):
        processes.signal("one", signal.SIGTERM)


def test_components_live_where_the_keeper_was_put_and_inherit_descriptors(folder: Path) -> None:
    read, write = os.pipe()
    within = ["env", "PUT_BY=within"]
    processes = Processes("inside-", within=within, descriptors=[write])
    try:
        os.close(write)
        say = f"import os; os.write({write}, os.environ['PUT_BY'].encode())"
        processes.start("one", [sys.executable, "-c", say])
        while not processes.exited():
            time.sleep(0.01)
        assert processes.exited() == {"one": 0}
        assert os.read(read, 100) == b"within"
    finally:
        os.close(read)
        processes.close()
    assert not list(folder.iterdir())


@pytest.mark.parametrize("number", [None, signal.SIGTERM])
def test_control_groups_go_after_the_components(folder: Path, number: signal.Signals | None) -> None:
    group = folder / "group"
    processes = Processes("inside-")
    processes.remove_at_end([group, folder / "never-made"])
    (group / "pods" / "one").mkdir(parents=True)
    processes.start("one", ["sleep", "600"])
    if number is not None:
        os.kill(processes.keeper_pid, number)
    processes.close()
    assert not list(folder.iterdir())
