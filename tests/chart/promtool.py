"""promtool as the tests run it: Prometheus' own parser and evaluation of rules."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

SCRAPE = "30s"
"""Between two values of a series in the tests, and between two evaluations of a rule."""


@dataclass(frozen=True)
class Promtool:
    """The binary, and a folder for the files of one test."""

    binary: Path
    folder: Path

    def check(self, rules: Mapping[str, Any]) -> None:
        """Parse rules and look for what is doubtful in them. Raises AssertionError with what it said."""
        self._run("check", "rules", "--lint=all", "--lint-fatal", str(self._write("rules", rules)))

    def evaluate(
        self, series: Mapping[str, str], expected: Mapping[str, Any], rules: Mapping[str, Any] | None = None
    ) -> None:
        """Evaluate over series in promtool's notation. Raises AssertionError with what it said.

        `expected` is `alert_rule_test` or `promql_expr_test` of a test file.
        """
        files = [] if rules is None else [str(self._write("rules", rules))]
        inputs = [{"series": name, "values": values} for name, values in series.items()]
        test = {"interval": SCRAPE, "input_series": inputs, **expected}
        file = {"rule_files": files, "evaluation_interval": SCRAPE, "tests": [test]}
        self._run("test", "rules", str(self._write("test", file)))

    def _write(self, name: str, content: Mapping[str, Any]) -> Path:
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(dict(content)))
        return path

    def _run(self, *arguments: str) -> None:
        command: Sequence[str | Path] = [self.binary, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
