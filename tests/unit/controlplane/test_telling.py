"""What the user gets to read: progress, the end of a compiler's output, advice."""

from __future__ import annotations

import io

import pytest

from tools.controlplane.binaries import build_advice
from tools.controlplane.progress import Progress, progress_line
from tools.controlplane.running import tail


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("elapsed", "detail", "width", "expected"),
    [
        (0, "", None, "building etcd: 0s"),
        (59.9, "net/http", None, "building etcd: 59s, net/http"),
        (61, "net/http", None, "building etcd: 1m01s, net/http"),
        (3600, "x", None, "building etcd: 60m00s, x"),
        (1, "a/very/long/package", 25, "building etcd: 1s, a/v..."),
        (1, "fits", 23, "building etcd: 1s, fits"),
    ],
)
def test_a_line_names_the_step_the_time_and_the_detail(
    elapsed: float, detail: str, width: int | None, expected: str
) -> None:
    assert progress_line("building etcd", elapsed, detail, width) == expected
    assert width is None or len(expected) <= width


def test_a_log_gets_a_plain_line_every_ten_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = Progress(stream, now=clock)
    progress.begin("building")
    for second in range(1, 26):
        clock.seconds = second
        progress.tick(f"package {second}")
    progress.end("built")
    assert stream.getvalue().splitlines() == [
        "building: 0s",
        "building: 10s, package 10",
        "building: 20s, package 20",
        "building: 25s, built",
    ]


def test_a_terminal_gets_one_line_that_changes() -> None:
    stream, clock = Terminal(), Clock()
    progress = Progress(stream, now=clock, width=20)
    progress.begin("building")
    for tenth in range(1, 11):
        clock.seconds = tenth / 10
        progress.tick("a/long/package/name")
    progress.end("built")
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert text.endswith("\r\x1b[Kbuilding: 1s, built\n")
    assert 4 <= text.count("\r") <= 8
    assert max(len(line) for line in text.replace("\x1b[K", "").split("\r")) <= 21


def test_the_tail_leaves_out_the_names_of_packages_that_went_well() -> None:
    output = ["net/http", "# k8s.io/x", "k8s.io/y", "x.go:1:2: undefined: y", ""]
    assert tail(output) == "  # k8s.io/x\n  x.go:1:2: undefined: y"
    assert tail([f"error {n}" for n in range(30)], 2) == "  error 28\n  error 29"
    assert tail([]) == "  (no output)"


@pytest.mark.parametrize(
    ("output", "advice"),
    [
        ("write /x: no space left on device", "disk is full"),
        ("dial tcp: lookup a-host: no such host", "check the network"),
        ("compile: signal: killed", "out of memory"),
        ('cgo: C compiler "gcc" not found', "CGO_ENABLED=0"),
        ("verifying module: checksum mismatch", "not the pinned one"),
        ("open /home/x: permission denied", "GOCACHE"),
        ("something new", "should not happen"),
    ],
)
def test_a_failed_build_says_what_to_do(output: str, advice: str) -> None:
    assert advice in build_advice(output)
