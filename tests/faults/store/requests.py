"""How many requests the API server has answered, by its own metrics."""

from __future__ import annotations

import re
from collections import Counter

from tests.faults.stage.rig import Rig

_SAMPLE = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<count>\S+)$", re.MULTILINE)
_REJECTED = re.compile(r"^apiserver_flowcontrol_rejected_requests_total\{[^}]*\} (\S+)$", re.MULTILINE)


async def answered(rig: Rig, code: int) -> Counter[str]:
    """Answers with this code so far, by verb and resource of ours."""
    text = await rig.kubectl("get", "--raw", "/metrics")
    found: Counter[str] = Counter()
    for sample in _SAMPLE.finditer(text):
        labels = dict(re.findall(r'(\w+)="([^"]*)"', sample["labels"]))
        if labels.get("code") == str(code):
            found[f"{labels['verb']} {labels['resource']}/{labels['subresource']}"] += int(
                float(sample["count"])
            )
    return found
