"""The program is told the contract and nothing of another execution; exit codes of the helper stay the helper's."""

from __future__ import annotations

import pytest

from prefect_dispatch.errors import DispatchError
from prefect_dispatch.format.contract import Contract
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.exit_codes import ExitCode, program_exit_code

CONTRACT = Contract(
    "digits", "k3v7q2m5x4c6b7a2-1", Epoch(0, 2, 1), "/runs/digits", "/runs/digits/exec/k3v7q2m5x4c6b7a2-1"
)


def test_a_start_from_scratch_is_told_with_empty_words() -> None:
    assert CONTRACT.variables() == {
        "DISPATCH_LINEAGE": "digits",
        "DISPATCH_ATTEMPT": "k3v7q2m5x4c6b7a2-1",
        "DISPATCH_EPOCH": "2000001",
        "DISPATCH_ROOT": "/runs/digits",
        "DISPATCH_EXEC_DIR": "/runs/digits/exec/k3v7q2m5x4c6b7a2-1",
        "DISPATCH_RESUME_FROM": "",
        "DISPATCH_RESUME_STEP": "",
        "DISPATCH_RESUME_STATE": "",
        "DISPATCH_DEADLINE": "",
        "DISPATCH_NOTICE": "",
        "DISPATCH_NOTICE_SIGNAL": "",
        "DISPATCH_WORKPLACE": "",
    }


def test_a_resume_from_step_0_is_told_apart_from_scratch() -> None:
    resumed = Contract(
        CONTRACT.lineage, CONTRACT.attempt, CONTRACT.epoch, CONTRACT.root, CONTRACT.exec_dir, "/save", 0, "{}"
    )
    told = resumed.variables()
    assert (told["DISPATCH_RESUME_FROM"], told["DISPATCH_RESUME_STEP"]) == ("/save", "0")
    assert told["DISPATCH_RESUME_STATE"] == "{}"


def test_inherited_words_of_another_execution_are_stripped_and_the_rest_is_kept() -> None:
    # given an environment that a job started from inside another one would inherit
    inherited = {
        "PATH": "/bin",
        "DISPATCH_SUBMISSION": "/x",
        "DISPATCH_RESTART": "4",
        "DISPATCH_FOO": "x",
        "MYDISPATCH_": "y",
    }
    # when the program's is made
    environment = CONTRACT.environment(inherited)
    # then only the contract's own words are left
    assert {name for name in environment if name.startswith("DISPATCH_")} == set(CONTRACT.variables())
    assert environment["PATH"] == "/bin" and environment["MYDISPATCH_"] == "y"
    assert "DISPATCH_SUBMISSION" in inherited


def test_output_is_unbuffered_unless_the_user_says_otherwise() -> None:
    assert CONTRACT.environment({})["PYTHONUNBUFFERED"] == "1"
    assert CONTRACT.environment({"PYTHONUNBUFFERED": ""})["PYTHONUNBUFFERED"] == ""


@pytest.mark.parametrize("code", [0, 1, 2, 137, 189, 196, 255])
def test_a_program_s_own_code_comes_out(code: int) -> None:
    assert program_exit_code(code) == code


@pytest.mark.parametrize("code", range(190, 196))
def test_a_program_s_code_of_the_helper_s_range_comes_out_as_1(code: int) -> None:
    assert program_exit_code(code) == 1
    assert ExitCode(code)


def test_every_error_exits_with_a_code_that_the_format_lists() -> None:
    def below(kind: type[DispatchError]) -> list[type[DispatchError]]:
        return [kind, *(each for child in kind.__subclasses__() for each in below(child))]

    codes = {kind.exit_code for kind in below(DispatchError)}
    assert codes - {1} <= set(ExitCode)
    assert {2, 3, 65, 69, 74, 190, 191, 192, 194} <= codes
