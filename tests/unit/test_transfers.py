"""What log and journal say of a save that is long on its way."""

from __future__ import annotations

from prefect_dispatch.format.journal import JournalKind
from prefect_dispatch.job.transfers import Transfers
from prefect_dispatch.stores.transfer import Direction, Transfer


class Telling:
    """Transfers by a clock of the test's own, and all that they say."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lines: list[str] = []
        self.entries: list[tuple[JournalKind, dict[str, object]]] = []
        self.transfers = Transfers(self.lines.append, self.write, lambda: self.now)

    def write(self, kind: JournalKind, **fields: object) -> None:
        self.entries.append((kind, fields))

    def take(self, now: float, done: int, path: str = "exec/a/save", direction: Direction = Direction.UPLOAD) -> None:
        self.now = now
        self.transfers.take(Transfer(direction, path, done, 10_000))


def test_a_short_transfer_is_not_told_of() -> None:
    telling = Telling()
    telling.take(0, 0)
    telling.take(9, 10_000)
    assert telling.lines == [] and telling.entries == []


def test_a_long_one_is_told_every_ten_seconds_and_at_its_end() -> None:
    # given a transfer of 25 seconds
    telling = Telling()
    for now in range(25):
        telling.take(now, now * 400)
    telling.take(25, 10_000)
    # then it is told twice on its way, and once at its end
    assert telling.lines == [
        "uploaded 4,000 of 10,000 bytes of exec/a/save",
        "uploaded 8,000 of 10,000 bytes of exec/a/save",
        "uploaded 10,000 of 10,000 bytes of exec/a/save",
    ]
    assert telling.entries[-1] == (
        JournalKind.TRANSFER,
        {"direction": "upload", "path": "exec/a/save", "done": 10_000, "total": 10_000},
    )


def test_another_save_has_a_time_of_its_own_and_no_name_breaks_the_line() -> None:
    telling = Telling()
    telling.take(0, 0)
    telling.take(9, 100, path="exec/a/two\nlines", direction=Direction.DOWNLOAD)
    telling.take(15, 200, path="exec/a/two\nlines", direction=Direction.DOWNLOAD)
    assert telling.lines == []
    telling.take(19, 300, path="exec/a/two\nlines", direction=Direction.DOWNLOAD)
    (line,) = telling.lines
    assert line.startswith("downloaded 300 of 10,000 bytes") and "\n" not in line
