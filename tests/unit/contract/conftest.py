"""Distributions that declare scheduler providers, made for one test."""

from collections.abc import Callable
from pathlib import Path

import pytest

Declare = Callable[..., Path]

PROVIDER = """
from astrabox.testing.memory_provider import MemorySchedulerProvider

class Provider(MemorySchedulerProvider):
    name = {name!r}
{extra}
"""


@pytest.fixture
def declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Declare:
    """Return a function that puts a distribution with one entry point on the path."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(
        name: str,
        *,
        calls_itself: str | None = None,
        extra: str = "",
        source: str | None = None,
        distribution: str | None = None,
    ) -> Path:
        module = f"provider_{distribution or name}_{abs(hash(tmp_path))}"  # modules outlive their test
        text = PROVIDER.format(name=calls_itself or name, extra=extra) if source is None else source
        (tmp_path / f"{module}.py").write_text(text)
        project = f"astrabox_scheduler_{distribution or name}"
        info = tmp_path / f"{project}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(
            f"[astrabox.providers.scheduler]\n{name} = {module}:Provider\n"
        )
        return tmp_path

    return install
