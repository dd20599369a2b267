"""Values of an identity: what its providers say now, as digests."""

from __future__ import annotations

import hashlib
import os

from prefect_dispatch.errors import IdentityUnknown, UsageError
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.identity import UNSET, Provider, ProviderKind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Mapping, Tuple


@dataclass(frozen=True)
class FoundValues:
    """What the providers said.

    Args:
        values: digests, by field.
        unknown: why, for each field whose provider could not answer.
        commits: the commit, for each field that names a git working tree.
    """

    values: Mapping[str, str]
    unknown: Mapping[str, str]
    commits: Mapping[str, str]


def find_values(providers: Mapping[str, str], folder: str, environment: Mapping[str, str]) -> FoundValues:
    """Ask each provider, each of them once.

    Args:
        providers: the provider of each field, as text.
        folder: what relative paths are relative to.
        environment: where variables are looked up.

    Raises:
        UsageError: a text is no provider.
    """
    answers: Dict[str, Tuple[str, str]] = {}
    unknown: Dict[str, str] = {}
    values: Dict[str, str] = {}
    commits: Dict[str, str] = {}
    for name, text in sorted(providers.items()):
        try:
            if text not in answers:
                answers[text] = _answer(text, folder, environment)
        except IdentityUnknown as error:
            unknown[name] = f"{text}: {error}"
            continue
        values[name], commit = answers[text]
        if commit:
            commits[name] = commit
    return FoundValues(values, unknown, commits)


def _answer(text: str, folder: str, environment: Mapping[str, str]) -> Tuple[str, str]:
    """A digest, and the commit that it is of, if any."""
    provider = Provider.parse(text)
    if provider is None:
        raise UsageError(f"{text!r} is no provider; use file:PATH, git:PATH or env:NAME")
    if provider.kind is ProviderKind.ENV:
        value = environment.get(provider.argument)
        return (UNSET if value is None else f"sha256:{hashlib.sha256(os.fsencode(value)).hexdigest()}"), ""
    path = os.path.join(folder, provider.argument)
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise IdentityUnknown("it holds what no path can hold") from None
    # What reads files and asks git is loaded only where it is needed.
    if provider.kind is ProviderKind.GIT:
        from prefect_dispatch.stores.git_state import state_of_repository

        return state_of_repository(path)
    from prefect_dispatch.stores.content_digest import digest_of_path

    return digest_of_path(path), ""
