"""The fact that opens a lineage, for tests of a record or a supervisor; only what the test is about has to be said."""

from __future__ import annotations

from prefect_dispatch.model.capabilities import Capabilities
from prefect_dispatch.model.facts import Opened
from prefect_dispatch.model.plan import plan
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED


def plain_opening(capabilities: Capabilities = SCRIPTED, *, root_visible: bool = True, **spec: object) -> Opened:
    """Open the lineage ``digits``, whose root and record are said to be below ``/runs``.

    Args:
        capabilities: the scheduler's.
        root_visible: whether supervisors see the checkpoint root.
        spec: fields of the job, over those of a plain one.
    """
    job = JobSpec.read({"lineage": "digits", "command": ["train"], "store": {"root": "/runs"}, **spec}, "the job")
    return Opened(
        spec=job,
        plan=plan(job, capabilities, root_visible=root_visible),
        identity=job.identity_digests(),
        owner="someone",
        root="/runs",
        record_root="/runs",
        workdir="/",
        scheduler={"type": capabilities.scheduler},
    )
