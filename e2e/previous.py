"""The release before this one, as far as an upgrade meets it: a lower version, and an older definition.

No release before this one was published. Until one is, "the previous" is made from the present tree: its
RunInvocation lacks one optional field, and its programs do not know that field, so they do not miss it.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
from pathlib import Path
from typing import Any

import yaml

from astrabox_scheduler_crds.labels import RUN_PLURAL
from tools.generated.chart import CHART, crd_template
from tools.generated.manifests import definitions

VERSION = "0.0.9"
FIELD = "failures"
"""Of a run's status."""
_IMAGE_LINE = re.compile(r"^( +)imagePullPolicy: .*\n", re.MULTILINE)
_PROGRAM = f"""
import runpy
from astrabox_scheduler_crds import crd
lacking_fields = crd.lacking_fields
crd.lacking_fields = lambda document: tuple(
    each for each in lacking_fields(document) if each.fields != ("status.{FIELD}",)
)
runpy.run_module("MODULE", run_name="__main__", alter_sys=True)
"""


def previous_command(module: str) -> list[str]:
    """A command that runs this module as the previous release had it; arguments may follow."""
    return ["python", "-c", _PROGRAM.replace("MODULE", module)]


def previous_chart(folder: Path) -> Path:
    """Make the previous chart in a folder that does not exist yet; the folder."""
    shutil.copytree(CHART, folder)
    about = yaml.safe_load((folder / "Chart.yaml").read_text())
    (folder / "Chart.yaml").write_text(yaml.safe_dump(about | {"version": VERSION, "appVersion": VERSION}))
    (folder / "templates" / "crds" / f"{RUN_PLURAL}.yaml").write_text(crd_template(RUN_PLURAL, _older_runs()))
    deployment = folder / "templates" / "deployment.yaml"
    text = deployment.read_text()
    (line,) = _IMAGE_LINE.finditer(text)
    command = f"{line[1]}command: {json.dumps(previous_command('astrabox_scheduler_operator'))}\n"
    deployment.write_text(text[: line.end()] + command + text[line.end() :])
    return folder


def _older_runs() -> dict[str, Any]:
    """Without the field and the rules about it."""
    crd = copy.deepcopy(definitions()[RUN_PLURAL])
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["status"]["properties"][FIELD]
    rules = schema["x-kubernetes-validations"]
    schema["x-kubernetes-validations"] = [each for each in rules if FIELD not in each["rule"]]
    return crd
