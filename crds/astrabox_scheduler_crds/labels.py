"""Names that appear in objects: the API group, kinds, labels and annotations.

They are part of the stored format: a change here needs a migration.
"""

from typing import Final

GROUP: Final = "scheduler.astrabox.io"
VERSION: Final = "v1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
CATEGORY: Final = "astrabox"

SCHEDULE_KIND: Final = "DeploymentSchedule"
SCHEDULE_PLURAL: Final = "deploymentschedules"
SCHEDULE_SHORT: Final = "dsched"

RUN_KIND: Final = "RunInvocation"
RUN_PLURAL: Final = "runinvocations"
RUN_SHORT: Final = "runinv"

DEPLOYMENT_LABEL: Final = f"{GROUP}/deployment"
"""On schedules and runs: the key of the AstraBox Deployment (`names.deployment_key`)."""

ASSIGNEE_LABEL: Final = f"{GROUP}/assignee"
"""On runs: the name of the provider Lease that dispatches it; absent on a run that waits for one."""

ROLE_LABEL: Final = f"{GROUP}/role"
"""On Leases: `provider` or `operator`."""

DRAINING_LABEL: Final = f"{GROUP}/draining"
"""On Leases: their process is stopping; it ends what it has in hand and is assigned nothing more."""

DELETED_LABEL: Final = f"{GROUP}/deleted"
"""On schedules: AstraBox has deleted it; what is left keeps an older list from bringing it back."""

APPLIED_AT_ANNOTATION: Final = f"{GROUP}/applied-at"
"""On schedules: when a provider last wrote it (API server time): an older snapshot must not undo it."""

GIVEN_AT_ANNOTATION: Final = f"{GROUP}/given-at"
"""On schedules: when AstraBox gave the apply or delete whose state it is (API server time).

One that was given earlier must not undo it. What is put back after a command that failed bears the mark
of the command before it.
"""
