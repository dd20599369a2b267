"""The one line that says what is wrong with a job spec: the field as it was written, its value, and the way out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from prefect_dispatch.format.printable import shorten
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.recovery import FIXED, Recovery, Rule

_EXAMPLES = {
    "lineage": "lineage: digits",
    "command": "command: [python, train.py]",
    "setup": "setup: [module load cuda]",
    "environment": "environment: {OMP_NUM_THREADS: 4}",
    "store": "store: checkpoint-store/default, or store: {root: ./runs}",
    "store.root": "root: ./runs",
    "scheduler.type": "type: local",
    "scheduler": "scheduler: local-scheduler/default, or scheduler: {type: local}",
    "resources": "resources: {cpus: 4}",
    "resources.options": "options: {partition: low}",
    "identity": "identity: {seed: 7}",
    "checkpoint_cancelation": "checkpoint_cancelation: {mode: notify_then_terminate, signal: USR1}",
    "saves": "saves: {kind: marker}",
    "recovery": "recovery: {preempted: {action: requeue, budget: 100}}",
    "recovery.final_exit_codes": "final_exit_codes: [3]",
}
_RULE_EXAMPLE = "{action: requeue, budget: 100}"

_ADVICE = {
    "string_type": "write text, in quotes where YAML reads a number, a date or true and false",
    "string_unicode": "write text that UTF-8 can hold",
    "string_too_short": "it must not be empty",
    "int_type": "write a whole number",
    "int_parsing": "write a whole number",
    "int_from_float": "write a whole number",
    "float_type": "write a number",
    "float_parsing": "write a number",
    "finite_number": "write a finite number",
    "bool_type": "write true or false, without quotes",
    "too_short": "it must not be empty",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "less_than_equal": ("le", "at most"),
}
_SHAPES = {"tuple_type", "mapping_type", "dict_type", "model_type", "model_attributes_type"}
_BRANCH_AT = {"store": 1, "scheduler": 1, "identity": 2}
"""Where in a place pydantic puts the name of the branch of a union that it tried."""


def describe_fault(
    error: ValidationError, document: Mapping[str, Any], spec: type[BaseModel], fixed: Iterable[str]
) -> str:
    """Say what is wrong first.

    Args:
        error: what pydantic found.
        document: the spec as it was written.
        spec: its model.
        fixed: fields of a spec that have one value only in this version.
    """
    fault = _first(error, document)
    parts = _place(fault, document)
    place = ".".join(parts)
    kind, value = fault["type"], fault["input"]
    if kind == "extra_forbidden":
        return f"unknown field {place!r}{_nearest(parts, spec, fixed)}"
    if kind == "missing":
        example = _EXAMPLES.get(place)
        return f"field {place!r} is missing; " + (f"add one such as {example}" if example else "add it")
    if kind == "value_error":
        message = fault["msg"].removeprefix("Value error, ")
        return message if not place or message.startswith(place) else f"{place}: {message}"
    if (parts and parts[-1] == "[key]") or kind == "invalid_key":
        return f"{'.'.join(part for part in parts if part != '[key]')}: this name is not text; write it in quotes"
    return f"{place}: {shorten(value)} is refused; {_advice(fault, parts)}"


def _advice(fault: ErrorDetails, parts: tuple[str, ...]) -> str:
    kind, place, bounds = fault["type"], ".".join(parts), fault.get("ctx", {})
    if kind in _BOUNDS:
        limit, words = _BOUNDS[kind]
        bound = bounds[limit]
        return f"it must be {words} {bound:g}"
    if parts[0] == "recovery" and parts[-1] == "action":
        return "use requeue, resubmit, hold or fail"
    if kind in ("literal_error", "enum"):
        return f"use {bounds['expected']}"
    if parts[0] == "identity" and len(parts) == 2:
        return "write text, a number or true or false; dates in quotes"
    if place in ("store", "scheduler"):
        return f"write {_EXAMPLES[place]}"
    if kind in _SHAPES:
        rule = (
            f"{parts[-1]}: {_RULE_EXAMPLE}" if parts[0] == "recovery" and len(parts) > 1 else "it with its own fields"
        )
        shape = "a list" if kind == "tuple_type" else "a mapping"
        return f"write {shape}, such as {_EXAMPLES.get(place, rule)}"
    return _ADVICE.get(kind, fault["msg"][:1].lower() + fault["msg"][1:])


def _first(error: ValidationError, document: Mapping[str, Any]) -> ErrorDetails:
    """The first fault, of a union's branches the one that was meant. A misspelt field goes before a missing one."""
    faults = [fault for fault in error.errors(include_url=False) if _meant(fault, document)]
    return next((fault for fault in faults if fault["type"] == "extra_forbidden"), faults[0])


def _meant(fault: ErrorDetails, document: Mapping[str, Any]) -> bool:
    field, *rest = fault["loc"] or ("",)
    if field not in ("store", "scheduler"):
        return True
    inline = isinstance(document.get(str(field)), Mapping)
    return inline is not str(rest[0]).startswith(("str", "function"))


def _place(fault: ErrorDetails, document: Mapping[str, Any]) -> tuple[str, ...]:
    """The place as the spec writes it, without pydantic's branches and our own ``rules``."""
    parts = [str(part) for part in fault["loc"]]
    branch = _BRANCH_AT.get(parts[0] if parts else "")
    if branch is not None and len(parts) > branch:
        del parts[branch]
    recovery = document.get("recovery")
    own = isinstance(recovery, Mapping) and "rules" in recovery
    if parts[:2] == ["recovery", "rules"] and not own:
        del parts[1]
    return tuple(parts)


def _nearest(parts: tuple[str, ...], spec: type[BaseModel], fixed: Iterable[str]) -> str:
    *parents, name = parts
    known = _fields(tuple(parents), spec, fixed)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        return f"; did you mean {'.'.join([*parents, near[0]])!r}?"
    return f"; known are {', '.join(known)}" if known else ""


def _fields(parents: tuple[str, ...], spec: type[BaseModel], fixed: Iterable[str]) -> list[str]:
    if not parents:
        return [*spec.model_fields, *fixed]
    if parents == ("recovery",):
        return [*(cause.value for cause in Cause if cause not in FIXED), *(set(Recovery.model_fields) - {"rules"})]
    if parents[0] == "recovery":
        return list(Rule.model_fields)
    model = _inline_model(spec.model_fields[parents[0]].annotation)
    return list(model.model_fields) if model is not None else []


def _inline_model(annotation: Any) -> type[BaseModel] | None:
    options = (annotation, *getattr(annotation, "__args__", ()))
    return next((each for each in options if isinstance(each, type) and issubclass(each, BaseModel)), None)
