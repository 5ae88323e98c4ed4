"""The chart that an upgrade with real pods begins from: it has to follow the present one."""

from __future__ import annotations

from pathlib import Path

import pytest

from astrabox_scheduler_crds.labels import RUN_PLURAL
from e2e.previous import FIELD, VERSION, previous_chart, previous_command
from tests.chart.helm import OPERATOR, Helm, named

pytestmark = pytest.mark.chart
RUNS = f"{RUN_PLURAL}.scheduler.astrabox.io"


def test_it_lacks_a_field_and_runs_a_program_that_does_not_miss_it(helm: Helm, tmp_path: Path) -> None:
    before = helm.render(chart=previous_chart(tmp_path / "previous"))
    (container,) = named(before, "Deployment", OPERATOR)["spec"]["template"]["spec"]["containers"]
    assert container["command"] == previous_command("astrabox_scheduler_operator")
    assert named(before, "Deployment", OPERATOR)["metadata"]["labels"]["helm.sh/chart"].endswith(VERSION)
    fields = [
        set(named(objects, "CustomResourceDefinition", RUNS)["spec"]["versions"][0]["schema"]
            ["openAPIV3Schema"]["properties"]["status"]["properties"])
        for objects in (before, helm.render())
    ]  # fmt: skip
    assert fields[1] - fields[0] == {FIELD}
