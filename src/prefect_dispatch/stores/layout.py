"""The layout of a lineage's root: which ledger or folder holds what."""

from __future__ import annotations

from prefect_dispatch.errors import MalformedName
from prefect_dispatch.format.names import split_attempt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

FORMAT_DOCUMENT = "format.json"
PUBLICATIONS = "pub"
PRUNED = "pruned"
CLAIMS = "claims"
DONE = "done"
IDENTITY = "identity"
DEADLINE = "deadline"
EXEC = "exec"
META = "meta"
TEMPORARY = "tmp"
STARTED_DOCUMENT = "started.json"
RESUME_DOCUMENT = "resume.json"
NOTICE_FILE = "notice"
REPORTS = "reports"
STANDING = (CLAIMS, PUBLICATIONS, PRUNED, DONE, IDENTITY, DEADLINE)
"""The ledgers whose emptiness decides something. They are made with the root: where one is not there, it is away."""
HOMES = (EXEC, META)
"""Where the folders of executions lie. They are made with the root too; what is in them may have been removed."""
RECORD = "record"
KNOWN_FOLDERS = frozenset(
    {
        *STANDING,
        *(EXEC, META, TEMPORARY, "metrics"),
        *(RECORD, "fold", REPORTS),
    }
)
"""What a lineage's root may hold; the last three where the record's root is the same."""


def generation_name(generation: int) -> str:
    """The name of a document in a ledger that holds one for each generation."""
    return f"{generation:020d}.json"


def exec_folder(attempt: str) -> str:
    """The program's own folder in one execution."""
    return f"{EXEC}/{attempt}"


def meta_folder(attempt: str) -> str:
    """What the helper keeps of one execution."""
    return f"{META}/{attempt}"


def notice_file(attempt: str) -> str:
    """The file that asks an execution's program to save and exit, once it is there.

    It lies with what the helper keeps, where no pattern of saves reaches, and where every node sees it that sees saves.
    """
    return f"{META}/{attempt}/{NOTICE_FILE}"


def manifests_folder(attempt: str) -> str:
    """The ledger of an execution's manifests."""
    return f"{META}/{attempt}/saves"


def barred_folder(attempt: str) -> str:
    """The ledger of paths whose files failed to reach the disk: empty names, base32 of the path.

    A ledger of its own beside the journal's entry: a decision must not depend on reading a long journal, and an empty
    name can still be made on a disk that has no room for a document.
    """
    return f"{META}/{attempt}/barred"


def journal_folder(attempt: str) -> str:
    """The ledger of what the helper noted inside one execution."""
    return f"{META}/{attempt}/journal"


def snapshots_folder(attempt: str) -> str:
    """Where snapshots of saves lie, one numbered folder each."""
    return f"{META}/{attempt}/snap"


def snapshot_folder(attempt: str, number: int) -> str:
    """Where one snapshot lies. All digits are written, so that of two copies of one step the later path is greater."""
    return f"{snapshots_folder(attempt)}/{number:020d}"


def numbers_folder(attempt: str) -> str:
    """The ledger of the numbers that this execution has given to snapshots and numbered saves: empty names."""
    return f"{META}/{attempt}/numbers"


def import_path(attempt: str, name: str) -> str:
    """Where the save that an execution resumes from is imported to."""
    return f"{META}/{attempt}/resume/{name}"


def owner_of(path: str) -> Optional[str]:
    """The attempt that a save at this path belongs to, or None where no save can be.

    A save lies in ``exec/<attempt>/`` or is ``meta/<attempt>/snap/<n>/<name>``.
    """
    parts = path.split("/")
    in_exec = parts[0] == EXEC and len(parts) >= 3
    in_snapshots = (
        parts[0] == META and len(parts) == 5 and parts[2] == "snap" and parts[3].isascii() and parts[3].isdigit()
    )
    if not in_exec and not in_snapshots:
        return None
    try:
        split_attempt(parts[1])
    except MalformedName:
        return None
    return parts[1]
