"""Text of a hostile job on its way to people: escapes for terminals, markup for pages and pictures."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from datetime import UTC, datetime
from html import unescape
from xml.etree import ElementTree

import pytest

from prefect_dispatch.cli.output import json_text
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.observation import ObjectRef, ObjectState
from prefect_dispatch.pictures.execution_page import as_words, execution_page
from prefect_dispatch.pictures.history import ExecutionRow
from prefect_dispatch.pictures.timeline import draw_timeline
from prefect_dispatch.pictures.timeline_values import Bar, Mark, MarkKind, Tick
from prefect_dispatch.supervisor.log_file import tail_of

EVERY_LOOK = ()
TEXTS = {
    "clear": "\x1b[2J\x1b[H",
    "clipboard": "\x1b]52;c;aGFoYQ==\x07",
    "title": "\x1b]0;gone\x1b\\",
    "C1": "\x9b2J\x9d0;x\x9c",
    "bidirectional": "\u202egpj.exe\u2066\u200f",
    "line ends": "a\r\nb\u2028c\u2029d\x85e\x0bf\x0cg",
    "surrogate": "\ud800",
    "NUL": "a\0b",
    "noncharacter": "\ufffe\uffff",
    "HTML": "<img src=x onerror=alert(1)><script>alert(1)</script>",
    "closed early": "</pre></text></svg><svg onload=alert(1)>",
    "entities": "&lt;script&gt;&#60;b&#62;<!DOCTYPE x [<!ENTITY a SYSTEM 'file:///etc/passwd'>]>&a;",
    "CDATA": "]]><script/>",
    "picture": "![x](https://evil.example/x.png)",
    "link": "[x](javascript:alert(1)) <https://evil.example>",
    "bare link": "https://evil.example www.evil.example a@evil.example",
    "table": "a | b |\n|---|---|\n| c |",
    "code": "```\n`x` ~~~",
    "emphasis": "**x** __y__ # z",
}
AT = datetime(2026, 3, 1, tzinfo=UTC)
SAFE_ELEMENTS = {
    *("svg", "title", "style", "clipPath", "rect", "pattern", "text", "tspan", "path", "circle"),
}


def row(detail: str) -> ExecutionRow:
    return ExecutionRow(
        epoch=Epoch(0, 1, 0),
        attempt="a" * 16 + "-0",
        object=ObjectRef(scheduler="local", id="1", token="a" * 16),
        state=ObjectState.ENDED,
        cause=Cause.FAILED,
        detail=detail,
        started_at=AT,
        ended_at=AT,
        exited_at=AT,
        pin=None,
        saves=0,
        newest_step=None,
        overlap=None,
    )


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_no_text_becomes_part_of_a_picture(text):
    # given it in each place of a picture
    bars = [Bar(text, text, AT, None, AT, text, text, 0)]
    # when
    picture = draw_timeline(text, bars, [Tick(0, AT, 1)], [Mark(AT, kind, text) for kind in MarkKind], AT)
    # then the picture is what it is with any other text: nothing active, nothing from elsewhere
    top = ElementTree.fromstring(picture.encode())
    names = {element.tag.partition("}")[2] for element in top.iter()}
    assert names <= SAFE_ELEMENTS
    attributes = [value for element in top.iter() for value in element.attrib.values()]
    assert [value for value in attributes if "url(" in value and not re.fullmatch(r"url\(#\w+\)", value)] == []
    assert [name for element in top.iter() for name in element.attrib if name.startswith("on") or "href" in name] == []
    assert "<!" not in picture


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_no_text_becomes_markup_of_a_page(tmp_path, text):
    # given it as the detail of an end, in the log and in the log's path
    log = tmp_path / "log"
    log.write_bytes(text.encode("utf-8", "surrogatepass"))
    # when
    page = execution_page(row(text), f"/logs/{text}", tail_of(str(log)))
    # then but for our own table and frame there is no sign that means anything in Markdown or HTML
    ours = re.sub(r"&#[0-9]+;|</?(pre|p|code)>|^\|.*\|$|Log: ", "", page, flags=re.MULTILINE)
    assert re.findall(r"[!-/:-@\[-`{-~]", ours) == []
    assert page.count("<pre>") == page.count("</pre>") == 1
    # and it can be read
    assert text.split()[0].isprintable() is False or text.split()[0] in unescape(page)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_no_text_becomes_markup_of_a_description(text):
    words = as_words(text, 200)
    assert words.isprintable()
    assert re.findall(r"[\[\]<>`*_|\\&~#@!]|://|www\.", words) == []


def test_a_harmless_description_is_shown_as_it_is():
    assert as_words("epoch 3/40, loss 0.12 (best: 0.11)") == "epoch 3/40, loss 0.12 (best: 0.11)"


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_no_json_that_is_printed_commands_a_terminal(text):
    printed = json_text({"detail": text, text: 1}, indent=2)
    assert printed.replace("\n", "").isprintable()
    assert json.loads(printed) == {"detail": text, text: 1}


def test_no_journal_and_no_record_commands_a_terminal(victim, unharmed):
    # given every text in the journal, as what the program said of itself
    journal = victim.meta / "journal"
    seq = 3
    for text in TEXTS.values():
        for kind in ("status", "fault", "fail"):
            entry = {"format": 1, "seq": seq, "kind": kind, "nonce": "0" * 16, "at": 1.7e9, "text": text}
            (journal / f"{seq:020d}.json").write_text(json.dumps(entry))
            seq += 1
    # when / then
    seen = unharmed(only=EVERY_LOOK)
    assert seen["view"]["code"] == 0
    assert "emphasis" not in seen["status"]["err"]


PRINTS_A_LOG = (
    "import sys; from prefect_dispatch.cli.logs import LogPrinter; LogPrinter({raw}).print_from(sys.argv[1], 0)"
)


def on_a_terminal(command: list[str]) -> bytes:
    """What a command writes to a terminal."""
    terminal, other_side = pty.openpty()
    process = subprocess.Popen(command, stdin=other_side, stdout=other_side, stderr=other_side)
    os.close(other_side)
    shown = b""
    try:
        while chunk := os.read(terminal, 65536):
            shown += chunk
    except OSError:
        pass  # Linux says EIO once the other side is closed.
    finally:
        os.close(terminal)
        process.wait(30)
    return shown


def test_a_log_on_a_terminal_cannot_command_it_and_in_a_pipe_is_what_it_is(tmp_path):
    # given
    content = "".join(TEXTS[name] for name in ("clear", "clipboard", "C1", "bidirectional", "NUL")).encode()
    content += b"\x9b2J \xff progress\rdone\tvery\n" + "né\n".encode()
    (tmp_path / "log").write_bytes(content)
    safe, raw = ([sys.executable, "-c", PRINTS_A_LOG.format(raw=raw), str(tmp_path / "log")] for raw in (False, True))
    # when
    shown, shown_raw = on_a_terminal(safe), on_a_terminal(raw)
    piped = subprocess.run(safe, capture_output=True, timeout=60).stdout
    # then
    text = shown.decode()
    assert {c for c in text if not c.isprintable()} <= {"\r", "\n", "\t"}
    assert "progress\rdone\tvery" in text and "né" in text and "\\x9b2J" in text
    assert b"\x1b]52" in shown_raw
    assert piped == content


def test_a_log_that_is_a_link_is_not_shown(victim, tmp_path):
    (tmp_path / "log").symlink_to(victim.outside / "secret")
    assert "hunter2" not in tail_of(str(tmp_path / "log"))
