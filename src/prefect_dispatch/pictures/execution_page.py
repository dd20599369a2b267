"""The page of one execution in Markdown: its row, its detail, the end of its log. No text of a job becomes markup."""

from __future__ import annotations

import re

from prefect_dispatch.format.printable import printable
from prefect_dispatch.pictures.history import ExecutionRow
from prefect_dispatch.pictures.tables import table_row

MOST_DETAIL = 1000
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_MARKUP = re.compile(r"[\[\]<>`*_|\\&~#@!]|:(?=//)|(?<=www)\.|^[-+=>]|(?<=^[0-9])[.)]", re.IGNORECASE)
_TO_FULL_WIDTH = 0xFEE0
"""From ASCII to Unicode's full-width forms."""


def execution_page(row: ExecutionRow, log: str | None, tail: str) -> str:
    """Write the page.

    Args:
        row: the execution.
        log: where its log is; None where nobody can see it.
        tail: the end of its log, lines already harmless.
    """
    shown = {name: value for name, value in table_row(row).items() if value and name != "epoch"}
    facts = "".join(f"| {name} | {value} |\n" for name, value in shown.items())
    detail = f"\n<p>{_referenced(row.detail, MOST_DETAIL)}</p>\n" if row.detail else ""
    end = ""
    if log is not None:
        lines = "\n".join(_referenced(line) for line in tail.splitlines())
        end = f"\n<p>Log: <code>{_referenced(log)}</code></p>\n\n<pre>{lines}</pre>\n"
    return f"| {row.epoch} | |\n|---|---|\n{facts}{detail}{end}"


def as_words(text: str, most: int | None = None) -> str:
    """Any text as one line that reads the same as Markdown and as plain text.

    What could be markup there becomes its full-width form, which is none: Prefect's UI shows descriptions as Markdown
    in some places and as they are in others, so that neither backslashes nor references would do.
    """
    return _MARKUP.sub(lambda found: chr(ord(found[0]) + _TO_FULL_WIDTH), printable(text, most))


def _referenced(text: str, most: int | None = None) -> str:
    """Any text as one line for an HTML element of the page.

    All ASCII punctuation becomes numeric character references, which can stand for no markup, neither Markdown's nor
    HTML's (CommonMark 0.31, section 2.5): no link, no picture that is fetched from afar, no end of the element, no
    address that becomes a link by itself. Outside of an element Prefect's UI would show the references themselves.
    """
    return _PUNCTUATION.sub(lambda found: f"&#{ord(found[0])};", printable(text, most))
