"""The judge: says from the log and from the bytes that are left what a trial lost. It knows no design."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from overlap_trials.saves import Mark, Torn, read_files


@dataclass
class Verdict:
    """What one trial lost, each in words.

    Args:
        wrong: resumes from something else than the greatest (epoch, step) that had been committed before they began.
        deleted: committed saves that should be there and are not, or that went away under a resume.
        torn: loads that mixed saves, missed files or failed in the middle.
        failed: executions that ended by an error of their own when they saved.
        resumes: how many resumes there were.
        commits: how many saves were committed.
    """

    wrong: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    resumes: int = 0
    commits: int = 0


def judge(entries: Sequence[dict[str, Any]], keep: int) -> Verdict:
    """Judge a trial whose processes have all ended.

    Args:
        entries: the log.
        keep: how many saves the rotation keeps.
    """
    verdict = Verdict()
    committed: dict[Mark, Path] = {}
    saving: list[Mark] = []
    owed: dict[int, Mark | None] = {}
    for entry in entries:
        kind = entry["kind"]
        if kind == "saving":
            saving.append(Mark(**entry["mark"]))
        elif kind == "committed":
            committed[Mark(**entry["mark"])] = Path(entry["place"])
        elif kind == "resuming":
            # Commits that end while it resumes it may miss or take, as it comes. One that was stopped before it could
            # look, and is outdone by a newer one by now, may go on from its own past: nobody will go on from it.
            owed[entry["epoch"]] = max((mark for mark in committed if mark.epoch < entry["epoch"]), default=None)
        elif kind == "resumed":
            _judge_resume(entry, owed[entry["epoch"]], verdict)
        elif kind == "unresumable":
            verdict.wrong.append(f"{entry['epoch']} had nothing to resume from: {entry['why']}")
        elif kind == "torn":
            verdict.torn.append(f"{entry['epoch']}: {entry['why']}")
            if entry["gone"]:
                verdict.deleted.append(f"under {entry['epoch']}: {entry['why']}")
        elif kind in ("save_failed", "crashed"):
            verdict.failed.append(entry["why"])
    verdict.resumes = sum(entry["kind"] in ("resumed", "unresumable", "torn") for entry in entries)
    verdict.commits = len(committed)
    _judge_remains(committed, saving, keep, verdict)
    return verdict


def _judge_resume(entry: dict[str, Any], owed: Mark | None, verdict: Verdict) -> None:
    taken = None if entry["mark"] is None else Mark(**entry["mark"])
    if owed is None:
        return
    if taken is None or (taken.epoch, taken.step) < (owed.epoch, owed.step):
        told = "scratch" if taken is None else f"epoch {taken.epoch} step {taken.step}"
        verdict.wrong.append(f"{entry['epoch']} took {told}, not epoch {owed.epoch} step {owed.step}")


def _judge_remains(committed: dict[Mark, Path], saving: Sequence[Mark], keep: int, verdict: Verdict) -> None:
    """Look for the newest saves of all, as many as rotation keeps, but for what their own writer has outdone since.

    Older ones are left out: that a replacement's rotation deletes what it has outdone is what a shared folder is for.
    """
    for mark in sorted(committed, reverse=True)[:keep]:
        later = sum(other.epoch == mark.epoch and other.step > mark.step for other in saving)
        if later >= keep:
            continue
        try:
            found = read_files(committed[mark])
        except Torn as error:
            verdict.deleted.append(f"epoch {mark.epoch} step {mark.step}: {error}")
            continue
        if found != mark:
            verdict.deleted.append(
                f"epoch {mark.epoch} step {mark.step} was written over by epoch {found.epoch} step {found.step}"
            )
