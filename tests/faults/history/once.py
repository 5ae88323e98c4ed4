"""G2: one Deployment and one due time are one run, ever."""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.history.due import text
from tests.faults.history.facts import Violation
from tests.faults.history.firing import runs_by_due
from tests.faults.history.objects import field
from tests.faults.history.runs import Run
from tests.faults.history.view import View, of_run


def doubled(view: View) -> Iterator[Violation]:
    """Two runs for one due time, whether under one name or two."""
    for (_, due), runs in runs_by_due(view).items():
        uids = {uid for run in runs for uid in _uids(run)}
        if len(uids) > 1:
            what = f"{len(uids)} runs were created for {text(due)}: {', '.join(sorted(uids))}"
            yield of_run("G2", what, runs[-1])


def shared_names(view: View) -> Iterator[Violation]:
    """One name that stood for two Deployments or due times: its calls cannot be told apart."""
    for run in view.runs.values():
        specs = [field(write.after, "spec") for write in run.creates] + [field(run.final, "spec")]
        pairs = {(str(spec.get("deploymentId")), spec.get("dueTime")) for spec in specs if spec}
        pairs |= {(call.deployment_id, None) for call in run.calls if not run.spec}
        if len(pairs) > 1:
            yield of_run("G2", f"its name stands for {len(pairs)} things: {sorted(map(str, pairs))}", run)
        others = {call.deployment_id for call in run.calls} - {run.deployment}
        if others:
            yield of_run("G2", f"its calls name another Deployment: {', '.join(sorted(others))}", run)


def unexplained(view: View) -> Iterator[Violation]:
    """Objects at the end that nobody created, and created ones that are gone though nobody deleted them.

    A create or delete of unknown outcome explains what was found.
    """
    for run in view.runs.values():
        uid = field(run.final, "metadata", "uid")
        told = {each for write in run.creates if (each := field(write.after, "metadata", "uid"))}
        doubtful = any(not write.succeeded or write.after is None for write in run.creates)
        if run.final is not None and uid not in told and not doubtful:
            yield of_run("G2", f"the object {uid} is there at the end, and no request created it", run)
        created = any(write.succeeded for write in run.creates)
        if run.final is None and created and not run.deletes:
            yield of_run("G2", "it was created and is gone, and no request deleted it", run)


def _uids(run: Run) -> set[str]:
    """Identities of the runs created under this name; an answer without one stands for itself."""
    found = {
        str(field(write.after, "metadata", "uid") or f"created at {write.received}")
        for write in run.creates
        if write.succeeded
    }
    uid = field(run.final, "metadata", "uid")
    told = any(write.succeeded and field(write.after, "metadata", "uid") is None for write in run.creates)
    return found if uid is None or told else found | {str(uid)}
