"""What readers look at over and over while others write. Each look returns what it must not have seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.model.fold import fold
from prefect_dispatch.stores.posix import PosixStore
from support.races.announcements import Announcements
from support.races.places import Look, open_record, open_root
from support.root_faults import faults_of


def see_names(root: str, told: str, folder: str, kind: str) -> Look:
    """Names that were there before a listing began are in it."""
    ledger, announced = PosixStore(Path(root)).ledger(folder), Announcements(told)
    before: set[str] = set()

    def look() -> list[str]:
        known = announced.read(kind) | before
        names = ledger.names()
        before.update(names)
        return [f"{folder}: {name} is missing" for name in known.difference(names)]

    return look


def see_publications(root: str, told: str) -> Look:
    lineage, announced = open_root(root), Announcements(told)
    before: set[str] = set()

    def look() -> list[str]:
        known = announced.read("pub") | before
        found = lineage.publications()
        before.update(each.name for each in found)
        faults = [f"{name} is missing" for name in known - before.intersection(each.name for each in found)]
        return faults + (["they are out of order"] if found != sorted(found, key=lambda each: each.order) else [])

    return look


def see_latest(root: str, told: str) -> Look:
    """The resume point is never below one that was returned before, by a publishing or by a look."""
    lineage, announced = open_root(root), Announcements(told)
    greatest: list[tuple[int, int, bytes]] = []

    def look() -> list[str]:
        known = [Publication.parse(name).order for name in announced.read("pub")]
        resume = lineage.latest()
        if resume.publication is None:
            return ["there is none"] if known or greatest else []
        forged = [f"forged: {entry}" for entry in resume.passed_over if entry.forged]
        unproven = [f"unproven: {entry}" for entry in resume.passed_over if "no manifest" in entry.why]
        floor = max([*known, *greatest], default=None)
        # The newest save of an execution is never rotated away, so nothing above may have been passed over.
        back = [f"{resume.publication.name} after {floor}"] if floor and resume.publication.order < floor else []
        greatest[:] = [resume.publication.order]
        return forged + unproven + back

    return look


def see_completions(root: str, told: str) -> Look:
    lineage, announced = open_root(root), Announcements(told)
    before: dict[str, Epoch] = {}

    def look() -> list[str]:
        known = announced.read("done")
        found = lineage.completions()
        faults = [f"passed over: {entry} {why}" for entry, why in found.passed_over]
        listed = {entry.name for entry in found.parts.values()}
        for key, entry in found.parts.items():
            above = [name for name in known if name.startswith(entry.name[:-20]) and name > entry.name]
            faults += [f"{name} outranks {entry.name}" for name in above]
            if before.get(key, entry.epoch) > entry.epoch:
                faults.append(f"{key} went back to {entry.epoch}")
            lineage.finished_part(entry)
        faults += [f"{key} is missing" for key in before if key not in found.parts]
        faults += [f"{name} has no entry" for name in known - listed if not any(n[:-20] == name[:-20] for n in listed)]
        before.update({key: entry.epoch for key, entry in found.parts.items()})
        return faults

    return look


def see_journal(root: str, told: str, attempt: str) -> Look:
    lineage, announced = open_root(root), Announcements(told)
    before: dict[int, Any] = {}

    def look() -> list[str]:
        known = {int(name.removesuffix(".json")) for name in announced.read(attempt)} | set(before)
        found = {entry.seq: entry for entry in lineage.journal(attempt).entries()}
        faults = [f"entry {seq} is missing" for seq in known - set(found)]
        faults += [f"entry {seq} changed" for seq in before if seq in found and before[seq] != found[seq]]
        before.update(found)
        return faults

    return look


def see_check(root: str, told: str) -> Look:
    lineage = open_root(root)
    return lambda: faults_of(lineage)


def see_record(record: str, told: str, anew: bool) -> Look:
    """A record as a supervisor sees it that goes on reading, or as one that has only just come."""
    announced, kept = Announcements(told), open_record(record)
    before = [0]

    def look() -> list[str]:
        known = max([before[0], *(int(name.removesuffix(".json")) for name in announced.read("fact"))])
        state = (open_record(record) if anew else kept).refresh()
        entries = open_record(record).entries()
        faults = [f"seq {state.seq} after {known}"] if state.seq < known else []
        if [entry.seq for entry in entries] != list(range(1, len(entries) + 1)):
            faults.append("the entries have a gap")
        if fold(entries[: state.seq]) != state:
            faults.append(f"the fold of {state.seq} facts differs")
        before[0] = state.seq
        return faults

    return look


LOOKS: dict[str, Callable[..., Look]] = {
    look.__name__: look
    for look in (
        *(see_names, see_publications, see_latest, see_completions),
        *(see_journal, see_check, see_record),
    )
}
