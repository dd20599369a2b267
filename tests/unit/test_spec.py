"""A spec is read as people write it, survives being passed on, and each fault is one line with the way out."""

from __future__ import annotations

import json
import string
from datetime import timedelta
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as some
from pydantic import BaseModel

from prefect_dispatch.errors import SpecError
from prefect_dispatch.format.durations import MAX_DURATION
from prefect_dispatch.format.saves import SaveKind, Saves
from prefect_dispatch.format.submission import Notice
from prefect_dispatch.model.causes import Action, Cause
from prefect_dispatch.model.recovery import FIXED, Recovery, Rule
from prefect_dispatch.model.spec import Cancelation, InlineScheduler, InlineStore, JobSpec, Resources

PLAIN = "lineage: digits\ncommand: [python, train.py]\n"


def read(text: str) -> JobSpec:
    return JobSpec.read(yaml.safe_load(text), "job.yaml")


def test_the_design_s_example_is_read() -> None:
    spec = read("""
lineage: digits
command: [python, examples/train_digits.py, --epochs, "40"]
workdir: .
setup: [module load cuda]
environment: {OMP_NUM_THREADS: "4"}
store: {root: ./runs}
scheduler: {type: local, slots: 2}
resources: {nodes: 1, tasks_per_node: 1, cpus: 4, gpus: 0, memory: 16GiB, time_limit: 4h, options: {partition: low}}
log: auto
saves: {kind: marker}
identity: {data: digits-1797, seed: 7, checkpoint_schema: "3"}
checkpoint_cancelation: {mode: notify_then_terminate, signal: SIGUSR1, notify_period: 60s}
cancelation: {mode: terminate}
recovery: {preempted: {action: requeue, budget: 100}, no_progress: 3}
shared_checkpoint: false
on_finished: refuse
""")
    assert spec.command == ("python", "examples/train_digits.py", "--epochs", "40")
    assert spec.store == InlineStore(root="./runs")
    assert spec.resources.memory == 16 * 2**30 and spec.resources.time_limit == timedelta(hours=4)
    assert spec.checkpoint_cancelation.notice == Notice("USR1", timedelta(seconds=60))
    assert spec.recovery.rules == {Cause.PREEMPTED: Rule(action=Action.REQUEUE, budget=100)}
    assert spec.recovery.no_progress == 3
    assert spec.saves == Saves(SaveKind.MARKER)


def test_numbers_in_command_environment_and_options_are_taken_as_their_text() -> None:
    spec = read("""
lineage: digits
command: [python, train.py, --epochs, 40, --rate, 0.001]
environment: {OMP_NUM_THREADS: 4}
resources: {options: {nice: 100}}
""")
    assert spec.command[-3:] == ("40", "--rate", "0.001")
    assert spec.environment == {"OMP_NUM_THREADS": "4"}
    assert spec.resources.options == {"nice": "100"}


WAYS_OUT = [
    # Unknown fields: the nearest known one.
    ("store: {rot: x}", "unknown field 'store.rot'; did you mean 'store.root'?"),
    ("comand: [ls]", "unknown field 'comand'; did you mean 'command'?"),
    ("resources: {gpu: 1}", "unknown field 'resources.gpu'; did you mean 'resources.gpus'?"),
    ("recovery: {preemptd: {action: hold}}", "unknown field 'recovery.preemptd'; did you mean 'recovery.preempted'?"),
    ("recovery: {no_progess: 3}", "unknown field 'recovery.no_progess'; did you mean 'recovery.no_progress'?"),
    (
        "recovery: {preempted: {action: requeue, buget: 3}}",
        "unknown field 'recovery.preempted.buget'; did you mean 'recovery.preempted.budget'?",
    ),
    (
        "checkpoint_cancelation: {signl: TERM}",
        "unknown field 'checkpoint_cancelation.signl'; did you mean 'checkpoint_cancelation.signal'?",
    ),
    ("shared_checkpont: false", "unknown field 'shared_checkpont'; did you mean 'shared_checkpoint'?"),
    ("zzz: 1", "unknown field 'zzz'; known are lineage, command, workdir, "),
    ("recovery: {zzz: 1}", "unknown field 'recovery.zzz'; known are failed, preempted, "),
    # Shapes.
    ("setup: module load", "setup: 'module load' is refused; write a list, such as setup: [module load cuda]"),
    ("environment: x", "environment: 'x' is refused; write a mapping, such as environment: {OMP_NUM_THREADS: 4}"),
    ("environment:", "environment: None is refused; write a mapping, such as environment: {OMP_NUM_THREADS: 4}"),
    ("resources: 5", "resources: 5 is refused; write a mapping, such as resources: {cpus: 4}"),
    ("recovery:", "recovery: None is refused; write a mapping, such as recovery: {preempted: "),
    (
        "recovery: {preempted: requeue}",
        "recovery.preempted: 'requeue' is refused; write a mapping, such as preempted: {action: requeue, budget: 100}",
    ),
    (
        "recovery: {final_exit_codes: 3}",
        "recovery.final_exit_codes: 3 is refused; write a list, such as final_exit_codes: [3]",
    ),
    ("saves: marker", "saves 'marker' is not a mapping; write one such as {kind: marker}"),
    ("store: 5", "store: 5 is refused; write store: checkpoint-store/default, or store: {root: ./runs}"),
    ("store:", "store: None is refused; write store: checkpoint-store/default, or store: {root: ./runs}"),
    ("store: {}", "field 'store.root' is missing; add one such as root: ./runs"),
    ("store: {root: 5}", "store.root: 5 is refused; write text, in quotes"),
    ("store: {root: ''}", "store.root: '' is refused; it must not be empty"),
    ("store: {root: a, record_root: ''}", "store.record_root: '' is refused; it must not be empty"),
    ("scheduler: [x]", "scheduler: ['x'] is refused; write scheduler: local-scheduler/default, or scheduler: {type: "),
    ("scheduler: {slots: 2}", "field 'scheduler.type' is missing; add one such as type: local"),
    ("scheduler: {type: pbs}", "scheduler.type: 'pbs' is refused; use 'local'"),
    # Values.
    ("resources: {nodes: x}", "resources.nodes: 'x' is refused; write a whole number"),
    ("resources: {nodes: 1.5}", "resources.nodes: 1.5 is refused; write a whole number"),
    ("resources: {nodes: yes}", "resources.nodes: True is not a number; write a whole number"),
    ("resources: {nodes: 0}", "resources.nodes: 0 is refused; it must be at least 1"),
    ("resources: {memory: 5 elephants}", "resources.memory: size '5 elephants' is not one; write a number of bytes"),
    ("resources: {time_limit: 0}", "resources.time_limit: 0s is no time at all"),
    ("max_pending: never", "max_pending: duration 'never' is not one; write 90, 90s, 30min"),
    ("watch_interval: 0s", "watch_interval: 0s is no time at all"),
    ("recovery: {no_progress: 0}", "recovery.no_progress: 0 is refused; it must be at least 1"),
    ("recovery: {no_progress: true}", "recovery.no_progress: True is not a number"),
    (
        "recovery: {preempted: {action: hop}}",
        "recovery.preempted.action: 'hop' is refused; use requeue, resubmit, hold",
    ),
    ("recovery: {preempted: {budget: 3}}", "field 'recovery.preempted.action' is missing"),
    ("recovery: {rules: 5, failed: {action: hold}}", "recovery.rules and rules beside it cannot both be given"),
    ("recovery: {rules: 5}", "recovery.rules: 5 is refused; write a mapping"),
    ("checkpoint_cancelation: {signal: KILL}", "checkpoint_cancelation.signal: signal 'KILL' cannot be a notice; use "),
    ("checkpoint_cancelation: {mode: x}", "checkpoint_cancelation.mode: 'x' is refused; use 'terminate' or "),
    ("saves: {kind: marker, makrer: x}", "saves.makrer is not a field of kind 'marker'; it has: marker"),
    ("saves: {kind: settle, settle: soon}", "saves.settle: duration 'soon' is not one"),
    ("environment: {DEBUG: yes}", "environment.DEBUG: YAML reads this word as true; write it in quotes"),
    ("environment: {LIMIT: .inf}", "environment.LIMIT: YAML reads this word as the number inf; write it in quotes"),
    ("environment: {str: [1]}", "environment.str: [1] is refused; write text"),
    ("environment: {1: x}", "environment.1: this name is not text; write it in quotes"),
    ("environment: {A=B: x}", "environment 'A=B' cannot be a variable's name"),
    ("environment: {DISPATCH_ROOT: x}", "environment.DISPATCH_ROOT is set by dispatch-job; choose a name without"),
    ('environment: {A: "a\\0b"}', r"environment.A: 'a\x00b' contains NUL; take it out"),
    ('workdir: "a\\0b"', r"workdir: 'a\x00b' contains NUL; take it out"),
    ('workdir: "\\ud800"', r"workdir: '\ud800' holds half a character"),
    ("log: ''", "log: '' is refused; it must not be empty"),
    ("identity: {data: 2024-01-01}", "identity.data: datetime.date(2024, 1, 1) is refused; write text, a number or"),
    ("identity: {x: {y: 1}}", "identity.x: {'y': 1} is refused; write text, a number or true or false"),
    ("identity: {x: .nan}", "identity.x nan is not a finite number; write it in quotes"),
    ("5: 6", "5: this name is not text; write it in quotes"),
    # Parts of later versions, by name.
    ("deadline: {margin: 2min}", "field 'deadline.budget' is missing"),
    ("deadline: {budget: 60s}", "deadline: budget 60s is not longer than the margin of 120s"),
    ("deadline: {budget: 8h, margin: 4s}", "deadline: margin 4s is too short: SIGTERM comes at 5s"),
    ("secrets: {A: secret/b}", "secrets: this version does not have secrets; take 'secrets' out"),
    ("secrets: {}", "secrets: this version does not have secrets"),
    ("script: train.sbatch", "script: only a job's file can name a batch script, which lies beside it; write command"),
    ("openjd: t.yaml", "openjd: this version does not have Open Job Description templates; take 'openjd' out"),
    ("identity: {code: 'git:'}", "identity.code 'git:' names nothing; for the text itself write literal:git:…"),
    ("identity: {config: 'file:'}", "identity.config 'file:' names nothing; for the text itself write literal:file:…"),
    ("identity: {user: 'env:A=B'}", "identity.user 'env:A=B' cannot be a variable's name; for the text itself write"),
    ("identity: {me: 'env:DISPATCH_ATTEMPT'}", "identity.me 'env:DISPATCH_ATTEMPT' is set by dispatch-job and differs"),
    ("saves: {kind: lightning}", "saves.kind 'lightning' is not in this version; use explicit, marker"),
    ("saves: {kind: dcp}", "saves.kind 'dcp' is not in this version"),
    ("shared_checkpoint: 1", "shared_checkpoint: 1 "),
    ("shared_checkpoint: 'true'", "shared_checkpoint: 'true' "),
    ("hold_for: 0", "hold_for: 0s is no time at all"),
    ("hold_for: soon", "hold_for: duration 'soon' is not one"),
    ("on_finished: again", "on_finished: 'again' is refused; use 'refuse' or 'supersede'"),
    ("cancelation: {mode: notify_then_terminate}", "cancelation {'mode': 'notify_then_terminate'} is not in this ver"),
    ("scheduler: {type: kubernetes}", "scheduler.type 'kubernetes' is not in this version; use local or slurm"),
    ("scheduler: {type: kubernetes}", "scheduler.type 'kubernetes' is not in this version; use local"),
]


@pytest.mark.parametrize(("line", "way_out"), WAYS_OUT, ids=[line for line, _ in WAYS_OUT])
def test_a_fault_is_one_line_with_field_value_and_way_out(line: str, way_out: str) -> None:
    with pytest.raises(SpecError) as refused:
        read(PLAIN + line)
    text = str(refused.value)
    assert text.startswith(f"job.yaml: {way_out}")
    assert "\n" not in text and len(text) < 400
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("document", "way_out"),
    [
        ({}, "field 'lineage' is missing; add one such as lineage: digits"),
        ({"lineage": "a"}, "field 'command' is missing; add one such as command: [python, train.py]"),
        ({"lineage": "a", "comand": ["ls"]}, "unknown field 'comand'; did you mean 'command'?"),
        ({"lineage": "A b", "command": ["ls"]}, "lineage 'A b' is not a lineage name; use 1 to 40 of a-z"),
        ({"lineage": 5, "command": ["ls"]}, "lineage: 5 is refused; write text, in quotes"),
        ({"lineage": "a", "command": "ls -l"}, "command: 'ls -l' is refused; write a list, such as command: [python"),
        ({"lineage": "a", "command": []}, "command: [] is refused; it must not be empty"),
        ({"lineage": "a", "command": [""]}, "command begins with an empty word; name a program"),
        ({"lineage": "a", "command": ["ls", True]}, "command.1: YAML reads this word as true; write it in quotes"),
        ({"lineage": "a", "command": ["ls", None]}, "command.1: None is refused; write text"),
        ({"lineage": "a", "command": ["a\0"]}, r"command.0: 'a\x00' contains NUL"),
        ({"lineage": "a", "command": ["x"], "workdir": 10**5000}, "workdir: a int beyond reason is refused"),
        ({"lineage": "a", "command": {"a": "x" * 10_000}}, "command: {'a': 'xxx"),
    ],
)
def test_a_spec_without_what_it_needs_is_told_so(document: dict[str, Any], way_out: str) -> None:
    with pytest.raises(SpecError) as refused:
        JobSpec.read(document, "job.yaml")
    assert str(refused.value).startswith(f"job.yaml: {way_out}")
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("document", [None, 5, "x", ["lineage"]])
def test_what_is_no_mapping_is_no_spec(document: object) -> None:
    with pytest.raises(SpecError, match=r"^job\.yaml is not a job spec: expected fields such as lineage and command$"):
        JobSpec.read(document, "job.yaml")


anything = some.recursive(
    some.one_of(some.none(), some.booleans(), some.integers(), some.floats(), some.text(max_size=5), some.dates()),
    lambda inner: some.one_of(
        some.lists(inner, max_size=2), some.dictionaries(some.one_of(some.text(max_size=3), some.integers()), inner)
    ),
    max_leaves=4,
)
fields = some.sampled_from([*JobSpec.model_fields, "cancelation", "on_finished", "shared_checkpoint", "deadline"])
recoveries = some.dictionaries(
    some.sampled_from([*Cause, *Recovery.model_fields]),
    some.one_of(anything, some.dictionaries(some.sampled_from(list(Rule.model_fields)), anything)),
    max_size=2,
)


@given(some.dictionaries(fields, anything, max_size=3), some.one_of(some.none(), recoveries))
def test_any_document_is_a_spec_or_one_line(document: dict[str, Any], recovery: dict[str, Any] | None) -> None:
    whole = {"lineage": "a", "command": ["x"], **document, **({"recovery": recovery} if recovery else {})}
    try:
        spec = JobSpec.read(whole, "job.yaml")
    except SpecError as error:
        assert "\n" not in str(error) and len(str(error)) < 500
    else:
        assert JobSpec.read(json.loads(json.dumps(spec.model_dump(mode="json"), allow_nan=False)), "again") == spec


words = some.text(some.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
times = some.timedeltas(timedelta(microseconds=1), MAX_DURATION)
rules = some.builds(
    Rule,
    action=some.sampled_from([Action.REQUEUE, Action.RESUBMIT, Action.HOLD, Action.FAIL]),
    budget=some.integers(1, 999_999),
    delay=some.timedeltas(timedelta(0), timedelta(hours=1)),
    max=some.timedeltas(timedelta(hours=1), MAX_DURATION),
    backoff=some.floats(1, 100),
)
specs = some.builds(
    JobSpec,
    lineage=some.text(string.ascii_lowercase, min_size=1, max_size=40),
    command=some.lists(words, min_size=1, max_size=3),
    setup=some.lists(words, max_size=2),
    environment=some.dictionaries(some.text(string.ascii_uppercase, min_size=1), words, max_size=2),
    store=some.one_of(words, some.builds(InlineStore, root=words, record_root=some.one_of(some.none(), words))),
    scheduler=some.one_of(words, some.builds(InlineScheduler, type=some.just("local"), slots=some.integers(1, 9))),
    resources=some.builds(
        Resources,
        nodes=some.integers(1, 99),
        memory=some.one_of(some.none(), some.integers(0, 2**62)),
        time_limit=some.one_of(some.none(), times),
    ),
    saves=some.one_of(
        some.just(Saves()),
        some.builds(Saves, some.just(SaveKind.SETTLE), pattern=some.just("*.pt"), settle=times),
    ),
    identity=some.dictionaries(
        words,
        some.one_of(
            words.filter(lambda word: ":" not in word),
            some.integers(),
            some.booleans(),
            some.floats(allow_nan=False, allow_infinity=False),
        ),
        max_size=3,
    ),
    checkpoint_cancelation=some.builds(Cancelation, signal=some.sampled_from(["SIGUSR1", "TERM"]), notify_period=times),
    recovery=some.builds(
        Recovery,
        rules=some.dictionaries(some.sampled_from([cause for cause in Cause if cause not in FIXED]), rules, max_size=3),
        no_progress=some.one_of(some.none(), some.integers(1, 9)),
        final_exit_codes=some.lists(some.integers(1, 189), max_size=3),
    ),
    max_pending=some.one_of(some.none(), times),
    watch_interval=times,
)


@given(specs)
def test_a_spec_survives_being_passed_as_a_flow_s_parameter(spec: JobSpec) -> None:
    passed = json.loads(json.dumps(spec.model_dump(mode="json"), allow_nan=False))
    again = JobSpec.read(passed, "the parameter")
    assert again == spec
    assert again.identity_digests() == spec.identity_digests()
    assert again.differences(spec) == ()


def test_differences_name_the_fields() -> None:
    one = read(PLAIN)
    other = read(PLAIN + "resources: {cpus: 2}\nidentity: {seed: 8}")
    assert one.differences(other) == ("resources", "identity.seed")


def test_digests_tell_values_and_types_apart() -> None:
    digests = [
        read(f"{PLAIN}identity: {{x: {value}}}").identity_digests()["x"] for value in ("1", "'1'", "1.5", "true", "2")
    ]
    assert len(set(digests)) == 5
    assert all(digest.startswith("sha256:") and len(digest) == 71 for digest in digests)


def test_every_field_is_described_for_the_form() -> None:
    schema = JobSpec.model_json_schema()
    models = {"JobSpec": schema, **{name: each for name, each in schema["$defs"].items() if "properties" in each}}
    models |= {each["title"]: each for each in schema["properties"]["saves"]["anyOf"]}
    assert {"JobSpec", "Resources", "Recovery", "Rule", "Cancelation", "InlineStore", "InlineScheduler"} <= set(models)
    bare = [
        f"{model}.{name}"
        for model, each in models.items()
        for name, entry in each["properties"].items()
        if not entry.get("description") and not (name == "kind" and entry["enum"] == [model])
    ]
    assert bare == []
    assert json.dumps(JobSpec.model_json_schema(mode="serialization"))


@pytest.mark.parametrize("model", [JobSpec, Resources, Recovery, Rule])
def test_a_spec_is_frozen(model: type[BaseModel]) -> None:
    assert model.model_config["frozen"] is True
