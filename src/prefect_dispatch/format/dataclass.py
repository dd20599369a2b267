"""Frozen dataclasses as the standard library makes them, for the job's side, which has to start fast.

The standard library writes and compiles six functions for each class, and imports ``inspect`` to do so: half of the
time in which ``dispatch-job`` started. The methods here are written once and look at the class. To type checkers this
is the standard decorator itself, and ``dataclasses.replace``, ``fields`` and ``asdict`` work on what it makes.
"""

from __future__ import annotations

import operator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Tuple, Type, TypeVar

    C = TypeVar("C")
    from dataclasses import dataclass as dataclass


class _Fields:
    """Stands for what the standard library's functions look for, and is made when one of them does."""

    def __get__(self, instance: object, owner: Any) -> Dict[str, Any]:
        import dataclasses

        defaults = {name: vars(owner)[name] for name in owner.__match_args__ if name in vars(owner)}
        body = {"__module__": owner.__module__, "__annotations__": owner.__annotations__, **defaults}
        twin: Any = type(owner.__name__, (), body)
        fields: Dict[str, Any] = dataclasses.dataclass(twin).__dataclass_fields__
        owner.__dataclass_fields__ = fields
        return fields


def _dataclass(*, frozen: bool, order: bool = False) -> Callable[[Type[C]], Type[C]]:
    """Make a class a frozen dataclass: its annotated names are its fields, with their values as defaults.

    Args:
        frozen: always true; written out, as everyone knows it.
        order: whether two of them compare by their fields, in order.
    """
    if not frozen:
        raise TypeError("only frozen dataclasses are made here; use the standard library's")

    def decorate(cls: Type[C]) -> Type[C]:
        names = tuple(cls.__annotations__)
        members: Dict[str, Any] = {**_methods(cls, names), **(_orderings(cls, names) if order else {})}
        members.update({"__match_args__": names, "__dataclass_fields__": _Fields()})
        for name, member in members.items():
            setattr(cls, name, member)
        return cls

    return decorate


def _methods(cls: Type[Any], names: Tuple[str, ...]) -> Dict[str, Callable[..., Any]]:
    defaults = {name: vars(cls)[name] for name in names if name in vars(cls)}
    check = getattr(cls, "__post_init__", None)

    def __init__(self: Any, *values: Any, **named: Any) -> None:
        given = dict(zip(names, values))
        if len(values) != len(names) or named:
            given = _complete(cls.__name__, names, defaults, values, named)
        # Past __setattr__, which refuses.
        self.__dict__.update(given)
        if check is not None:
            check(self)

    def __eq__(self: Any, other: object) -> Any:
        return self.__dict__ == other.__dict__ if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(_values(self, names))

    def __repr__(self: Any) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({fields})"

    def __setattr__(self: Any, name: str, value: Any) -> None:
        raise _frozen_error(f"cannot assign to field {name!r}")

    def __delattr__(self: Any, name: str) -> None:
        raise _frozen_error(f"cannot delete field {name!r}")

    methods = (__init__, __eq__, __hash__, __repr__, __setattr__, __delattr__)
    return {method.__name__: method for method in methods if method.__name__ not in vars(cls)}


def _orderings(cls: Type[Any], names: Tuple[str, ...]) -> Dict[str, Callable[..., Any]]:
    def by(compare: Callable[[Any, Any], Any]) -> Callable[..., Any]:
        def method(self: Any, other: object) -> Any:
            if other.__class__ is not self.__class__:
                return NotImplemented
            return compare(_values(self, names), _values(other, names))

        return method

    return {f"__{compare.__name__}__": by(compare) for compare in (operator.lt, operator.le, operator.gt, operator.ge)}


def _complete(
    who: str, names: Tuple[str, ...], defaults: Dict[str, Any], values: Tuple[Any, ...], named: Dict[str, Any]
) -> Dict[str, Any]:
    """All fields, in their order, from what was given by place and by name.

    Raises:
        TypeError: one is missing, unknown, or given twice.
    """
    if len(values) > len(names):
        raise TypeError(f"{who} takes {len(names)} values and got {len(values)}")
    placed = dict(zip(names, values))
    for name in named:
        if name in placed or name not in names:
            raise TypeError(f"{who} got field {name!r} {'twice' if name in placed else 'which it does not have'}")
    given = {**defaults, **placed, **named}
    missing = [name for name in names if name not in given]
    if missing:
        raise TypeError(f"{who} lacks {', '.join(map(repr, missing))}")
    return {name: given[name] for name in names}


def _values(instance: Any, names: Tuple[str, ...]) -> Tuple[Any, ...]:
    return tuple(map(instance.__dict__.__getitem__, names))


def _frozen_error(text: str) -> AttributeError:
    from dataclasses import FrozenInstanceError

    return FrozenInstanceError(text)


if not TYPE_CHECKING:
    dataclass = _dataclass
