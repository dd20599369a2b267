"""A site's command: believed at its plain word about every node, no shell between, and ended with all it started."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from prefect_dispatch.errors import UsageError
from prefect_dispatch.model.observation import ObjectRef
from prefect_dispatch.schedulers.cessation import CessationAnswer, EndedObject
from prefect_dispatch.schedulers.command_signal import MOST_OUTPUT, CommandSignal
from support.marked_processes import kill_each, processes_with
from support.waiting import until


def ended(*nodes: str, object: str = "4711") -> EndedObject:
    reference = ObjectRef(scheduler="slurm", id=object, token="a" * 16)
    return EndedObject(lineage="digits", object=reference, restart=2, attempt=f"{'a' * 16}-2", nodes=nodes)


def ask(command: tuple[str, ...], *nodes: str, object: str = "4711", **options) -> CessationAnswer:
    asked = CommandSignal(command=command, **{"time_limit": timedelta(seconds=10), **options})
    return asyncio.run(asked.ask(ended(*nodes, object=object)))


def shell(script: str) -> tuple[str, ...]:
    """A site's script, which finds what it is asked about in its environment."""
    return ("sh", "-c", script)


@pytest.mark.parametrize(
    ("script", "answer", "told"),
    [
        ("echo ceased", "ceased", "n1, n2"),
        ("echo '  ceased  '", "ceased", "n1, n2"),
        ("test $DISPATCH_CESSATION_NODE = n1 && echo ceased || echo running", "running", "n2"),
        ("test $DISPATCH_CESSATION_NODE = n1 && echo ceased || echo gone", "unknown", "n2: gone"),
        ("test $DISPATCH_CESSATION_NODE = n1 && echo ceased", "unknown", "n2: exit 1"),
        ("echo ceased; exit 3", "unknown", "exit 3"),
        ("kill -9 $$", "unknown", "exit -9"),
        ("echo CEASED", "unknown", "CEASED"),
        ("echo ceased; echo ceased", "unknown", "n1: "),
        ("echo not ceased", "unknown", "not ceased"),
        ("true", "unknown", "no word"),
        ("echo ceased >&2", "unknown", "no word"),
        ("test $DISPATCH_CESSATION_NODE = n1 && exit 1; echo running", "running", "n2"),
    ],
)
def test_asked_node_by_node_every_node_needs_its_word(script, answer, told):
    found = ask(shell(script), "n1", "n2")
    assert found.answer == answer
    assert told in found.detail


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("echo n1 ceased; echo n2 ceased", "ceased"),
        ("echo n2 ceased; echo n3 running; echo n1 ceased", "ceased"),
        ("echo n1 ceased", "unknown"),
        ("echo n1 ceased; echo n2 ceased; echo n2 running", "unknown"),
        ("echo n1 ceased; echo n2 running", "running"),
        ("echo ceased", "unknown"),
        ("echo n1 ceased; echo n2", "unknown"),
        ("for n in $(echo $DISPATCH_CESSATION_NODES | tr , ' '); do echo $n ceased; done", "ceased"),
    ],
)
def test_asked_once_for_all_it_names_each(script, answer):
    assert ask(shell(script), "n1", "n2", each="object").answer == answer


def test_no_known_node_is_unknown_without_asking(tmp_path):
    assert ask(("touch", str(tmp_path / "asked"))).answer == "unknown"
    assert not (tmp_path / "asked").exists()


def test_words_are_arguments_and_nothing_in_them_is_code(tmp_path):
    # given an object whose name would be a command to a shell, and a word that looks like a placeholder once it is in
    script = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(repr(sys.argv[2:])); print('ceased')"
    words = (sys.executable, "-c", script, str(tmp_path / "seen"), "{object}", "x{node}y", "{{node}}", "{restart}")
    # when
    found = ask(words, "n1", object="7;touch,$(id)`{node}`")
    # then it comes as it is
    assert found.answer == "ceased"
    assert (tmp_path / "seen").read_text() == repr(["7;touch,$(id)`{node}`", "xn1y", "{node}", "2"])


@pytest.mark.parametrize("node", ["-oProxyCommand=id", "a b", "", "n\n1", "é"])
def test_a_node_that_may_be_an_option_or_two_words_is_not_asked_about(node, tmp_path):
    assert ask(("touch", str(tmp_path / "asked")), node).answer == "unknown"
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize("command", [(), ("",), ("{host}",), ("{node!r}",), ("{node:>9}",), ("{node.x}",), ("{",)])
def test_a_command_that_asks_for_what_is_not_there_is_refused_at_once(command):
    with pytest.raises(UsageError):
        CommandSignal(command=command)
    with pytest.raises(UsageError):
        CommandSignal(command=("x", "{node}"), each="object")


def test_a_program_that_is_not_there_is_unknown():
    assert "cannot be run" in ask(("/no/such/program",), "n1").detail


def test_at_its_time_limit_it_is_ended_with_all_that_it_started():
    # given a command that ignores SIGTERM and starts children
    mark = f"HUNG={os.getpid()}-{time.monotonic_ns()}"
    script = f"trap '' TERM; export {mark}; sleep 600 & (trap '' TERM; sleep 600) & sleep 600"
    began = time.monotonic()
    # when
    found = ask(shell(script), "n1", time_limit=timedelta(seconds=0.5))
    # then
    assert found == CessationAnswer("unknown", "n1: no answer within 0.5s")
    assert time.monotonic() - began < 8
    until(lambda: not processes_with(mark), "its children are gone", 5)


@pytest.mark.parametrize("script", ["sleep 600", "(setsid sleep 600 &) ; sleep 600"], ids=["child", "grandchild"])
def test_at_its_time_limit_what_has_left_its_session_is_ended_too(script, tmp_path):
    # given a command whose children are in sessions of their own, and one of another call that is as slow
    mark = f"APART={os.getpid()}-{time.monotonic_ns()}"
    there = tmp_path / "there"
    apart = f"setsid -f sh -c 'touch {there}; exec sleep 600' >/dev/null 2>&1"
    ask(shell(f"export {mark}; {apart}; until [ -e {there} ]; do sleep 0.01; done; echo ceased"), "n1")
    (other,) = processes_with(mark)
    try:
        # when
        found = ask(
            shell(f"export {mark}; setsid -f sh -c '{script}'; sleep 600"), "n1", time_limit=timedelta(seconds=1)
        )
        # then
        assert found == CessationAnswer("unknown", "n1: no answer within 1s")
        until(lambda: processes_with(mark) == [other], "its children are gone", 5)
    finally:
        kill_each(processes_with(mark))


def test_one_that_leaves_a_child_with_its_output_is_bounded_too():
    mark = f"LEFT={os.getpid()}-{time.monotonic_ns()}"
    found = ask(shell(f"export {mark}; sleep 600 & echo ceased"), "n1", time_limit=timedelta(seconds=0.5))
    assert found.answer == "unknown"
    until(lambda: not processes_with(mark), "its child is gone", 5)


def test_endless_output_is_bounded():
    found = ask(("yes", "ceased"), "n1")
    assert (found.answer, str(MOST_OUTPUT) in found.detail) == ("unknown", True)


def test_bytes_that_are_no_text_are_no_word_and_reach_no_terminal():
    found = ask(shell(r"printf 'ceased\377\033[31m'"), "n1")
    assert found.answer == "unknown" and found.detail.isprintable()


def test_who_is_cancelled_leaves_nothing_behind(tmp_path: Path):
    # given a poller that is waiting
    mark = f"CANCELLED={os.getpid()}-{time.monotonic_ns()}"
    command = CommandSignal(command=shell(f"export {mark}; touch {tmp_path / 'up'}; sleep 600"))

    async def give_up() -> None:
        asking = asyncio.create_task(command.ask(ended("n1")))
        while not (tmp_path / "up").exists():
            await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    # when it is told to leave
    asyncio.run(give_up())
    # then
    until(lambda: not processes_with(mark), "the command is gone", 5)
