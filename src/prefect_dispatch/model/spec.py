"""The job spec: a job as a user writes it, immutable once a lineage is opened with it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal, Self, TypeGuard

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from prefect_dispatch.errors import SpecError, UsageError
from prefect_dispatch.format.deadline import check_terms
from prefect_dispatch.format.identity import Provider, literal_text
from prefect_dispatch.format.printable import shorten
from prefect_dispatch.format.saves import SaveKind, Saves
from prefect_dispatch.format.submission import SIGNALS, Notice
from prefect_dispatch.model.fields import Count, Duration, PositiveDuration, Size, Text, Word
from prefect_dispatch.model.placeholders import check_name
from prefect_dispatch.model.recovery import Recovery
from prefect_dispatch.model.spec_fault import describe_fault


class _SpecPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Resources(_SpecPart):
    """What one execution needs of the scheduler."""

    nodes: Annotated[Count, Field(ge=1, description="Nodes")] = 1
    tasks_per_node: Annotated[Count, Field(ge=1, description="Tasks on each node")] = 1
    cpus: Annotated[Count | None, Field(ge=1, description="CPUs of each task")] = None
    gpus: Annotated[Count, Field(ge=0, description="GPUs of each node")] = 0
    memory: Annotated[Size | None, Field(description="Memory of each node, such as 16GiB")] = None
    time_limit: Annotated[PositiveDuration | None, Field(description="Longest run of one execution, such as 4h")] = None
    options: Annotated[Mapping[str, Word], Field(description="The scheduler's own options")] = Field(
        default_factory=dict
    )


class Cancelation(_SpecPart):
    """How a program is asked to end, in Open Job Description's words."""

    mode: Annotated[
        Literal["terminate", "notify_then_terminate"], Field(description="End at once, or give notice first")
    ] = "notify_then_terminate"
    signal: Annotated[str, Field(description="The notice: TERM, INT, HUP, USR1, USR2 or QUIT, with or without SIG")] = (
        "TERM"
    )
    notify_period: Annotated[Duration, Field(description="Time from the notice to the kill")] = timedelta(seconds=30)

    @field_validator("signal")
    @classmethod
    def _known_signal(cls, value: str) -> str:
        word = value.removeprefix("SIG")
        if word not in SIGNALS:
            raise ValueError(f"signal {value!r} cannot be a notice; use one of {', '.join(SIGNALS)}")
        return word

    @property
    def notice(self) -> Notice | None:
        """The notice to give, or None to end at once."""
        return None if self.mode == "terminate" else Notice(self.signal, self.notify_period)


class DeadlineSpec(_SpecPart):
    """How long a generation may take in all, from its first execution to its end."""

    budget: Annotated[PositiveDuration, Field(description="How long it may take in all, such as 8h")]
    margin: Annotated[
        Duration, Field(description="How long before the end it is asked to save; within it nothing is started")
    ] = timedelta(minutes=2)
    count_queue: Annotated[
        bool, Field(strict=True, description="Whether its time begins when it is opened, and not with its first start")
    ] = False

    @model_validator(mode="after")
    def _leaves_time(self) -> Self:
        wrong = check_terms(self.budget, self.margin)
        if wrong:
            raise ValueError(wrong)
        return self


def _read_saves(value: Any) -> Any:
    if isinstance(value, Saves):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"saves {shorten(value)} is not a mapping; write one such as {{kind: marker}}")
    try:
        return Saves.decode(value)
    except UsageError as error:
        raise ValueError(str(error)) from None


class InlineStore(_SpecPart):
    """A checkpoint store given in the spec itself."""

    root: Annotated[
        Text,
        Field(
            min_length=1, description="Folder as the job sees it, relative to the spec's file; or s3://BUCKET/PREFIX"
        ),
    ]
    record_root: Annotated[
        Text | None,
        Field(min_length=1, description="Folder or s3://BUCKET/PREFIX of the record; the root where left out"),
    ] = None


class InlineScheduler(_SpecPart):
    """A scheduler given in the spec itself: its type, and the fields of that type's block."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: Annotated[Literal["local", "slurm"], Field(description="The kind of scheduler: local or slurm")]

    @field_validator("type", mode="before")
    @classmethod
    def _refuse_later_types(cls, value: Any) -> Any:
        if value == "kubernetes":
            raise ValueError(f"scheduler.type {value!r} is not in this version; use local or slurm")
        return value


IdentityValue = Text | int | float | bool
_NOT_YET = {
    "openjd": "Open Job Description templates",
    "secrets": "secrets",
}
_FIXED_FIELDS = ("cancelation",)
"""Fields of a spec that have one value only in this version."""

_MARKER = {"type": "string", "default": Saves().marker, "description": "The marker's file name"}
_PATTERN = {"type": "string", "description": "A glob of the saves, such as *.pt"}
_SETTLE = {
    "anyOf": [{"type": "string"}, {"type": "number"}],
    "default": "30s",
    "description": "How long nothing may have changed",
}
_OVERWRITTEN = {
    "type": "boolean",
    "default": True,
    "description": "Whether a published save may be written into again; it is copied then",
}

_ONLY_MODEL = {
    "type": "boolean",
    "default": False,
    "description": "Whether the Trainer saves no optimiser (save_only_model)",
}


def _kind_schema(kind: SaveKind, required: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    """One kind with its own fields, so that the form sends no others."""
    word = {"type": "string", "enum": [kind.value], "default": kind.value}
    properties = {"kind": word, **fields}
    needed = () if kind is SaveKind.EXPLICIT else ("kind",)
    own = {"type": "object", "title": kind.value, "properties": properties, "additionalProperties": False}
    return {**own, "required": [*needed, *required]} if needed or required else own


_SAVES_SCHEMA = {
    "anyOf": [
        _kind_schema(SaveKind.EXPLICIT, overwritten=_OVERWRITTEN),
        _kind_schema(SaveKind.MARKER, marker=_MARKER),
        _kind_schema(SaveKind.SETTLE, ("pattern",), pattern=_PATTERN, settle=_SETTLE),
        _kind_schema(SaveKind.MESSAGES),
        _kind_schema(SaveKind.HUGGINGFACE, only_model=_ONLY_MODEL),
    ]
}
_COMMAND_SCHEMA = {
    "title": "Command",
    "description": "The program and its arguments",
    # The form in the UI has a field for a text; for what may be a text or a number it wants JSON.
    "anyOf": [
        {"title": "words", "type": "array", "minItems": 1, "items": {"type": "string"}},
        {
            "title": "words and numbers, in JSON",
            "type": "array",
            "minItems": 1,
            "items": {"anyOf": [{"type": "string"}, {"type": "number"}]},
        },
    ],
}


def _allow_fixed_fields(schema: dict[str, Any]) -> None:
    """Tell of the fields that have one value only, which may be written down."""
    # Not a constant that is required: the form in the UI cannot fill that in.
    mode = {"type": "string", "enum": ["terminate"], "default": "terminate", "title": "Mode"}
    terminate = {"type": "object", "properties": {"mode": mode}, "default": {"mode": "terminate"}}
    fixed: dict[str, Any] = {"cancelation": {**terminate, "additionalProperties": False}}
    only = {"description": "In this version it has one value only"}
    schema["properties"].update({name: {"title": name, **field, **only} for name, field in fixed.items()})
    schema["properties"]["saves"]["default"] = {"kind": SaveKind.EXPLICIT.value}


class JobSpec(_SpecPart):
    """One generation of a lineage, as a user writes it in YAML. Unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=_allow_fixed_fields)

    lineage: Annotated[
        str, Field(description="Name of the line of work, 1 to 40 of a-z, 0-9 and '-'; {date} in it is the run's day")
    ]
    command: Annotated[
        tuple[Word, ...],
        Field(min_length=1, description="The program and its arguments; numbers are taken as text"),
        WithJsonSchema(_COMMAND_SCHEMA),
    ]
    workdir: Annotated[Text, Field(min_length=1, description="Where it runs; relative to the spec's file")] = "."
    setup: Annotated[tuple[Text, ...], Field(description="Shell lines before the command")] = ()
    environment: Annotated[
        Mapping[Text, Word], Field(description="Variables set for the program; numbers are taken as text")
    ] = Field(default_factory=dict)
    store: Annotated[Text | InlineStore, Field(description="checkpoint-store/NAME, or inline {root: PATH}")] = (
        "checkpoint-store/default"
    )
    workplace: Annotated[
        Text | None,
        Field(min_length=1, description="Where saves lie on the job's machine before a bucket has them; $TMPDIR else"),
    ] = None
    scheduler: Annotated[
        Text | InlineScheduler,
        Field(description="local-scheduler/NAME or slurm-scheduler/NAME, or inline {type: local, …}"),
    ] = "local-scheduler/default"
    resources: Annotated[Resources, Field(description="What one execution needs")] = Resources()
    log: Annotated[Text, Field(min_length=1, description="auto, or a file that output is appended to")] = "auto"
    saves: Annotated[
        Saves,
        BeforeValidator(_read_saves),
        PlainSerializer(lambda saves: saves.encode(), return_type=dict[str, Any]),
        WithJsonSchema(_SAVES_SCHEMA),
        Field(description="How saves become known: kind explicit, marker, settle or messages"),
    ] = Saves()
    identity: Annotated[
        Mapping[str, IdentityValue],
        Field(description="What makes the run this run: values, or file:PATH, git:PATH and env:NAME to look them up"),
    ] = Field(default_factory=dict)
    checkpoint_cancelation: Annotated[
        Cancelation, Field(description="How it is asked to save and exit when it is preempted")
    ] = Cancelation()
    recovery: Annotated[Recovery, Field(description="What to do after an execution has ended, by cause")] = Recovery()
    max_pending: Annotated[PositiveDuration | None, Field(description="Longest time in the scheduler's queue")] = None
    deadline: Annotated[
        DeadlineSpec | None, Field(description="How long it may take in all; as long as it takes where left out")
    ] = None
    shared_checkpoint: Annotated[
        bool,
        Field(
            strict=True,
            description="Whether all executions write into one place: then none follows unasked",
        ),
    ] = False
    hold_for: Annotated[
        PositiveDuration | None,
        Field(description="How long a hold waits; then the job ends as hold_expired"),
    ] = None
    on_finished: Annotated[
        Literal["refuse", "supersede"],
        Field(description="What to do when the lineage is finished already: refuse, or begin its next generation"),
    ] = "refuse"
    watch_interval: Annotated[PositiveDuration, Field(description="How often saves are looked for")] = timedelta(
        seconds=5
    )

    @field_validator("lineage")
    @classmethod
    def _lineage_name(cls, value: str) -> str:
        try:
            return check_name(value)
        except UsageError as error:
            raise ValueError(str(error)) from None

    @field_validator("command")
    @classmethod
    def _whole_words(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value[0]:
            raise ValueError("command begins with an empty word; name a program")
        return value

    @field_validator("environment")
    @classmethod
    def _own_variables(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        for name in value:
            if name.startswith("DISPATCH_"):
                raise ValueError(f"environment.{name} is set by dispatch-job; choose a name without DISPATCH_")
            if not name or "=" in name:
                raise ValueError(f"environment {shorten(name)} cannot be a variable's name; give one without '='")
        return value

    @field_validator("identity")
    @classmethod
    def _identity_values(cls, value: Mapping[str, IdentityValue]) -> Mapping[str, IdentityValue]:
        for name, entry in value.items():
            if isinstance(entry, str):
                try:
                    Provider.parse(entry)
                except UsageError as error:
                    raise ValueError(f"identity.{name} {error}") from None
            if isinstance(entry, float) and not math.isfinite(entry):
                raise ValueError(f"identity.{name} {entry} is not a finite number; write it in quotes")
        return value

    @model_validator(mode="before")
    @classmethod
    def _refuse_later_parts(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        if "script" in value:
            raise ValueError("script: only a job's file can name a batch script, which lies beside it; write command")
        for name, what in _NOT_YET.items():
            if name in value:
                raise ValueError(f"{name}: this version does not have {what}; take {name!r} out of the spec")
        if value.get("cancelation") not in (None, {}, {"mode": "terminate"}):
            raise ValueError(f"cancelation {value['cancelation']!r} is not in this version; use {{mode: terminate}}")
        return {name: entry for name, entry in value.items() if name not in _FIXED_FIELDS}

    @classmethod
    def read(cls, document: Any, what: str) -> Self:
        """Validate a spec.

        Args:
            document: what the YAML holds.
            what: where it was read, for the error.

        Raises:
            SpecError: one line for the first fault, with the field, its value and the nearest known field.
        """
        if not isinstance(document, Mapping):
            raise SpecError(f"{what} is not a job spec: expected fields such as lineage and command")
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            raise SpecError(f"{what}: {describe_fault(error, document, cls, _FIXED_FIELDS)}") from None

    def identity_digests(self) -> dict[str, str]:
        """The literal fields of the identity as they are kept and compared: a digest for each."""
        providers = self.identity_providers()
        return {name: _digest(value) for name, value in sorted(self.identity.items()) if name not in providers}

    def identity_providers(self) -> dict[str, str]:
        """The fields of the identity that are looked up, each with its provider."""
        return {name: value for name, value in sorted(self.identity.items()) if _is_provider(value)}

    def differences(self, other: JobSpec) -> tuple[str, ...]:
        """The names of the fields in which another spec differs; those of the identity one by one."""
        mine, theirs = self.model_dump(mode="json"), other.model_dump(mode="json")
        names: list[str] = []
        for name in mine:
            if name == "identity":
                names += [f"identity.{field}" for field in _different_values(mine[name], theirs[name])]
            elif mine[name] != theirs[name]:
                names.append(name)
        return tuple(names)


def _different_values(one: Mapping[str, IdentityValue], other: Mapping[str, IdentityValue]) -> list[str]:
    """The fields of an identity in which another one differs. Python takes 1, 1.0 and true for the same; we do not."""
    fields = sorted({*one, *other})
    return [name for name in fields if (type(one.get(name)), one.get(name)) != (type(other.get(name)), other.get(name))]


def _is_provider(value: IdentityValue) -> TypeGuard[str]:
    return isinstance(value, str) and Provider.parse(value) is not None


def _digest(value: IdentityValue) -> str:
    value = literal_text(value) if isinstance(value, str) else value
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return "sha256:" + hashlib.sha256(text.encode("ascii")).hexdigest()
