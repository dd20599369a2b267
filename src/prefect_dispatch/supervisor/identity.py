"""Identity of a job as a supervisor can tell it: what its providers say here, before anything starts."""

from __future__ import annotations

import os
from pathlib import Path

from prefect_dispatch.errors import SpecError
from prefect_dispatch.format.identity import Provider, ProviderKind
from prefect_dispatch.model.job import ResolvedJob
from prefect_dispatch.schedulers.registry import environment_here, runs_here


def unseen_fields(job: ResolvedJob) -> dict[str, str]:
    """The fields whose providers cannot be asked here, and why; the first execution tells what they are.

    A job that runs here sees what this process sees. Of any other that is known only where its places are.
    """
    if runs_here(job.scheduler):
        return {}
    unseen: dict[str, str] = {}
    for field, text in job.spec.identity_providers().items():
        why = _why_unseen(job, Provider.parse(text))
        if why:
            unseen[field] = why
    return unseen


def identity_of(job: ResolvedJob) -> dict[str, str]:
    """The digests of a job's identity: its literals, and what the providers say that can be asked here.

    It takes as long as it takes to read the files that it names.

    Raises:
        SpecError: a provider that can be asked cannot answer; the text names its field.
    """
    unseen = unseen_fields(job)
    providers = {name: text for name, text in job.spec.identity_providers().items() if name not in unseen}
    literals = job.spec.identity_digests()
    if not providers:
        return literals
    from prefect_dispatch.stores.identity_values import find_values

    found = find_values(providers, job.workdir, environment_here(job.scheduler, job.spec))
    if found.unknown:
        told = "; ".join(f"identity.{name} {why}" for name, why in found.unknown.items())
        raise SpecError(f"{told}; correct it, or give the value itself")
    return dict(sorted({**literals, **found.values}.items()))


def _why_unseen(job: ResolvedJob, provider: Provider | None) -> str:
    if provider is None:
        return ""
    if provider.kind is ProviderKind.ENV:
        known = provider.argument in job.spec.environment
        return "" if known else f"the job's own environment tells what {provider.argument} is"
    if not Path(job.workdir).is_dir():
        return f"this supervisor cannot see {job.workdir}"
    place = os.path.join(job.workdir, provider.argument)
    return "" if os.path.exists(place) else f"this supervisor cannot see {place}"
