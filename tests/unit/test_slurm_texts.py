"""What Slurm's commands print, as it is read: times, nodes, queues and accounts, with whatever else is in them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as some

from prefect_dispatch.errors import SchedulerError, UsageError
from prefect_dispatch.model.observation import Exit
from prefect_dispatch.schedulers.slurm.node_list import expand_nodes
from prefect_dispatch.schedulers.slurm.refusals import is_absent, is_disabled, is_over, is_refusal
from prefect_dispatch.schedulers.slurm.tables import read_accounting, read_queue
from prefect_dispatch.schedulers.slurm.time_limits import read_time_limit, write_time_limit

TOKEN = "k3v7q2m5x4c6b7a2"
NAME = f"digits.g0n1.{TOKEN}"
COMMENT = f"prefect-dispatch:{TOKEN}"


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("10", timedelta(minutes=10)),
        ("4:00", timedelta(minutes=4)),
        ("1:00:00", timedelta(hours=1)),
        ("2-12", timedelta(days=2, hours=12)),
        ("3-0:00", timedelta(days=3)),
        ("1-00:00:00", timedelta(days=1)),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
        ("INVALID", None),
        ("", None),
    ],
)
def test_a_time_limit_is_read_in_all_its_forms(text, limit):
    assert read_time_limit(text) == limit


@pytest.mark.parametrize("text", ["4h", "1:2:3:4", "-5", "1-2:3:4:5", "x", "9" * 40])
def test_what_is_no_time_limit_is_refused(text):
    with pytest.raises(UsageError, match="is no time limit"):
        read_time_limit(text)


@given(some.integers(1, 10**8))
def test_a_time_limit_is_read_as_it_was_written(seconds):
    assert read_time_limit(write_time_limit(timedelta(seconds=seconds))) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("n1", ("n1",)),
        ("n[1-3,7],gpu01", ("n1", "n2", "n3", "n7", "gpu01")),
        ("n[08-11]", ("n08", "n09", "n10", "n11")),
        ("r[1-2]n[1-2]-ib", ("r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib")),
        ("None assigned", ()),
        ("(null)", ()),
        ("", ()),
        ("n[x-y]", ("n[x-y]",)),
        ("n[3-1]", ("n[3-1]",)),
        ("n[1-3", ("n[1-3",)),
        ("n1,r[1-400]n[1-400]", ("n1,r[1-400]n[1-400]",)),
    ],
)
def test_a_list_of_nodes_is_read(text, nodes):
    assert expand_nodes(text) == nodes


def queue_line(id="7", state="RUNNING", restarts="0", code="0", name=NAME, comment=COMMENT, nodes="n1", reason="None"):
    return f"{id}|{state}|{restarts}|{code}|1796064509|N/A|1:00:00|{nodes}|{reason}|{name}|{comment}|"


def account_line(id="7", state="FAILED", code="7:0", name=NAME, comment=COMMENT, submit="1796064500", end="1796064600"):
    return f"{id}|{state}|{code}|{submit}|1796064509|{end}|1-00:00:00|n[1-2]|{name}|{comment}"


def test_a_job_of_ours_is_read_from_the_queue():
    (entry,) = read_queue(queue_line(nodes="n[1-2]", restarts="3") + "\n").values()
    assert (entry.id, entry.token, entry.state, entry.restart) == ("7", TOKEN, "RUNNING", 3)
    assert entry.nodes == ("n1", "n2") and entry.time_limit == timedelta(hours=1)
    assert entry.started_at == datetime.fromtimestamp(1796064509, UTC) and entry.ended_at is None
    assert not entry.stop_asked
    (asked,) = read_queue(queue_line(comment=f"{COMMENT}:stop")).values()
    assert asked.stop_asked


@pytest.mark.parametrize(
    ("text", "exit"),
    [
        ("1792", Exit(code=7)),
        ("9", Exit(signal=9)),
        ("0", Exit(code=0)),
        ("7:0", Exit(code=7)),
        ("0:15", Exit(signal=15)),
        ("49920", Exit(code=195)),
    ],
)
def test_an_exit_is_read_as_old_and_new_versions_print_it(text, exit):
    (entry,) = read_queue(queue_line(code=text)).values()
    assert entry.exit == exit


def test_jobs_of_others_stand_in_nobodys_way():
    text = "\n".join(
        [
            queue_line(id="1", name="we|ird"),
            queue_line(id="2", name="two\nlines"),
            queue_line(id="3", name="a", comment=f"b|{NAME}|c"),
            queue_line(id="4_[1-9]", name="array"),
            queue_line(id="5", name=f"x.{NAME}"),
            queue_line(),
            queue_line(id="8", state="FAILED", nodes="", reason="BadConstraints"),
        ]
    )
    assert set(read_queue(text)) == {"7"}


@pytest.mark.parametrize("comment", [f"{COMMENT}|moved by an admin", "|", "a||b|"])
def test_a_job_of_ours_is_ours_whatever_others_wrote_into_its_comment(comment):
    assert set(read_queue(queue_line(comment=comment))) == {"7"}
    assert set(read_accounting(account_line(comment=comment))) == {"7"}


@pytest.mark.parametrize(
    "text",
    [
        "Last login: Monday",
        "slurm_load_jobs error: Unable to contact slurm controller",
        "7|RUNNING",
        queue_line(restarts="many"),
        queue_line(code="x"),
        queue_line().replace("1796064509", "2026-11-30T18:48:29"),
    ],
)
def test_what_is_no_answer_of_squeues_is_an_error_and_names_it(text):
    with pytest.raises(SchedulerError, match="squeue printed"):
        read_queue(text)


@pytest.mark.parametrize("text", ["garbage", "7|FAILED", account_line(end="yesterday")])
def test_what_is_no_answer_of_saccts_is_an_error_and_names_it(text):
    with pytest.raises(SchedulerError, match="sacct printed"):
        read_accounting(text)


def test_an_empty_answer_knows_no_job():
    assert read_queue("") == {} and read_accounting("\n") == {}


def test_the_runs_of_a_job_come_in_the_order_of_their_submission():
    text = "\n".join(
        [
            account_line(state="COMPLETED", code="0:0", submit="1796064700", end="1796064800"),
            account_line(state="PREEMPTED", code="0:0", submit="1796064500"),
            account_line(state="RESIZING", code="0:0", submit="1796064500"),
        ]
    )
    (runs,) = read_accounting(text).values()
    assert [run.state for run in runs] == ["PREEMPTED", "COMPLETED"]
    assert runs[0].nodes == ("n1", "n2") and runs[0].time_limit == timedelta(days=1)


@given(some.text(max_size=200))
def test_no_text_is_anything_but_read_or_an_error(text):
    for read in (read_queue, read_accounting):
        try:
            assert isinstance(read(text), dict)
        except SchedulerError as error:
            assert "\n" not in str(error)


BANNER = "Warning: unauthorized access is not allowed, and retries are logged. X11 forwarding is disabled."


@pytest.mark.parametrize("before", ["", f"{BANNER}\n"])
@pytest.mark.parametrize(
    ("complaint", "code"),
    [
        (
            "sbatch: error: invalid partition specified: nope\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified",
            1,
        ),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", 1),
        ("sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.", 1),
        (
            "/usr/bin/sbatch: unrecognized option '--nonsense=3'\nTry \"sbatch --help\" for more information",
            255,
        ),
        ("sbatch: option '--tim=4:00' is ambiguous; possibilities: '--time' '--time-min'", 255),
        ("sbatch: option '--requeue' doesn't allow an argument", 255),
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified", 1),
        (
            "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's "
            "size and/or time limits)",
            1,
        ),
    ],
)
def test_a_refusal_is_one(complaint, code, before):
    assert is_refusal(before + complaint, code, prefixed=True)


def test_an_option_that_sbatch_cannot_read_is_a_refusal_where_no_connection_can_have_been_lost():
    assert is_refusal("sbatch: error: Invalid --time specification", 255, prefixed=False)
    assert not is_refusal("sbatch: error: Invalid --time specification", 255, prefixed=True)


@pytest.mark.parametrize("before", ["", f"{BANNER}\n"])
@pytest.mark.parametrize("code", [1, 255, -9, 137])
@pytest.mark.parametrize(
    "complaint",
    [
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received",
        "sbatch: error: Batch job submission failed: Unable to create job record, try again",
        "sbatch: error: Batch job submission failed: Something new",
        "sbatch: fatal: Could not establish a configuration source",
        "ssh: connect to host login port 22: Connection refused",
        "Killed",
        "",
    ],
)
def test_a_doubt_is_no_refusal(complaint, code, before):
    assert not is_refusal(before + complaint, code, prefixed=True)


@pytest.mark.parametrize("code", [255, -9, 137])
def test_a_warning_of_an_sbatch_that_was_cut_off_is_no_refusal(code):
    assert not is_refusal("sbatch: error: this is not allowed for long\nConnection closed.", code, prefixed=True)


def test_what_is_gone_or_over_is_told_apart():
    assert is_absent("slurm_load_jobs error: Invalid job id specified")
    assert is_over("scancel: error: Kill job error on job id 3: Job/step already completing or completed")
    assert is_over("Job has already finished for job 9")
    assert not is_over("Job can not be altered now, try again later")
    assert is_disabled(f"{BANNER}\nRequested operation is presently disabled for job 4") and not is_disabled(BANNER)
