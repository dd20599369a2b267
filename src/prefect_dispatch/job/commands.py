"""Commands: what ``dispatch-job`` does beside ``run``."""

from __future__ import annotations

import json
import os
import threading
import time
from datetime import timedelta

from prefect_dispatch.errors import NothingPublished, StoreError, UsageError
from prefect_dispatch.format import contract
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.exit_codes import ExitCode
from prefect_dispatch.format.printable import printable
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.format.saves import SaveKind
from prefect_dispatch.job.execution import Execution, open_root
from prefect_dispatch.job.saving import Saving
from prefect_dispatch.stores.check import Severity
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.resume import Resume

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional


def publish(path: str, step: int, state: str = "") -> Publication:
    """Publish one save of the execution that this process belongs to. Durable when it returns.

    Args:
        path: the save, a file or folder inside of ``DISPATCH_EXEC_DIR``; absolute or relative to the working folder.
        step: the program's own step, 0 to 2^63-1.
        state: the program's own resume state, at most 64 KiB; the next execution finds it in ``DISPATCH_RESUME_STATE``.

    Raises:
        UsageError: this process belongs to no execution, or the step cannot be one.
        Unpublishable: saves.kind is another one, or the save is not there, lies elsewhere or has too long a path.
        StoreError: the store failed.
    """
    return Saving(Execution.of_environment(os.environ)).publish_explicitly(os.fspath(path), step, state)


def latest(root: Optional[str] = None) -> Resume:
    """Find the save to resume from.

    Args:
        root: a lineage's root. None for the execution that this process belongs to: then its resume choice and
            identity count, and nothing of a later epoch.

    Returns:
        The resume point; its publication is None where nothing is published.

    Raises:
        UsageError: there is neither a root nor an execution.
        UnusableCheckpoint: saves are published and none is usable.
        MalformedName: a ledger holds a malformed name.
        StoreError: the store failed.
    """
    if root is not None or contract.ATTEMPT not in os.environ:
        return _lineage_root(root).latest()
    execution = Execution.of_environment(os.environ)
    bound = Epoch.of(execution.epoch.number + 1)
    return execution.root.latest(execution.choice, bound, execution.identity)


def show_latest(root: Optional[str], as_json: bool) -> int:
    """Print the save to resume from."""
    resume = latest(root)
    for entry in resume.passed_over:
        _complain(f"passed over {entry}")
    if resume.publication is None:
        raise NothingPublished("nothing is published; start from scratch")
    where = os.path.join(_root(root), resume.publication.path)
    if as_json:
        state = resume.manifest.state if resume.manifest is not None else ""
        print(json.dumps({**_fields(resume.publication), "absolute": where, "state": state}))
    else:
        print_path(where)
    return ExitCode.DONE


def show_list(root: Optional[str], as_json: bool) -> int:
    """Print all publications, in order."""
    publications = _lineage_root(root).publications()
    if as_json:
        print(json.dumps([_fields(publication) for publication in publications]))
    else:
        for publication in publications:
            print(f"{publication.epoch}\t{publication.step}\t{printable(publication.path)}")
    return ExitCode.DONE


def show_check(root: Optional[str], as_json: bool) -> int:
    """Print what is wrong with a root; 65 if anything is."""
    found = open_root(_root(root)).check()
    if as_json:
        print(json.dumps([{"severity": f.severity.value, "place": f.place, "text": f.text} for f in found]))
    else:
        for finding in found:
            print(printable(str(finding)))
    faults = sum(finding.severity is Severity.FAULT for finding in found)
    return ExitCode.MALFORMED if faults else ExitCode.DONE


def show_environment() -> int:
    """Print the contract of this execution as shell exports."""
    import shlex

    Execution.of_environment(os.environ)
    for name in contract.VARIABLES:
        print(f"export {name}={shlex.quote(os.environ.get(name, ''))}")
    return ExitCode.DONE


def watch(interval: timedelta, timeout: timedelta, once: bool) -> int:
    """Publish this execution's saves as they become whole, until the first error.

    Args:
        interval: how often to look.
        timeout: how long one look may take.
        once: look once; for a source that needs a settle time, once more after it.
    """
    execution = Execution.of_environment(os.environ)
    kind = execution.saves.kind
    if kind is SaveKind.EXPLICIT:
        raise UsageError("saves.kind is 'explicit', so there is nothing to watch; use dispatch-job publish")
    if kind is SaveKind.MESSAGES:
        raise UsageError("saves.kind is 'messages', which dispatch-job run takes itself; there is nothing to watch")
    saving = Saving(execution)
    looks = 0
    while True:
        for publication in _scan_within(saving, timeout.total_seconds()):
            print(publication.name, flush=True)
        looks += 1
        if not once:
            time.sleep(interval.total_seconds())
        elif kind is SaveKind.SETTLE and looks == 1:
            time.sleep(execution.saves.settle.total_seconds())
        else:
            return ExitCode.DONE


def _scan_within(saving: Saving, seconds: float) -> List[Publication]:
    """Look and publish; the look may take that long, and what hangs in the file system is left behind.

    Raises:
        StoreError: it took longer.
    """
    outcome: List[List[Publication]] = []
    failure: List[BaseException] = []

    def scan() -> None:
        try:
            outcome.append(saving.scan())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=scan, name="scan", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(min(0.2, seconds))
        since = saving.looking_since
        if thread.is_alive() and since is not None and time.monotonic() - since > seconds:
            raise StoreError(f"looking for saves takes longer than {seconds:g}s; is the file system there?")
    if failure:
        raise failure[0]
    return outcome[0]


def _lineage_root(root: Optional[str]) -> LineageRoot:
    """A lineage's root that an execution has claimed: what lies above or below one has nothing published either."""
    found = open_root(_root(root))
    found.require()
    return found


def _root(root: Optional[str]) -> str:
    chosen = root or os.environ.get(contract.ROOT, "")
    if not chosen:
        raise UsageError(f"no root; give --root <root>/<lineage> or set {contract.ROOT}")
    return chosen if "://" in chosen else os.path.abspath(chosen)


def _fields(publication: Publication) -> Dict[str, Any]:
    return {
        "epoch": publication.epoch.number,
        "execution": str(publication.epoch),
        "step": publication.step,
        "path": publication.path,
        "name": publication.name,
    }


def print_path(path: str) -> None:
    """Print a path or a key in the bytes that it has, for a script to use, whatever the terminal's encoding is."""
    import io
    import sys

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.flush()
        sys.stdout.buffer.write(os.fsencode(path) + b"\n")
    else:
        print(path)


def _complain(text: str) -> None:
    import sys

    print(f"dispatch-job: {printable(text)}", file=sys.stderr)
