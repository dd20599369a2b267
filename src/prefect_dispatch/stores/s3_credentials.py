"""Credentials: what requests to an object store are signed with."""

from __future__ import annotations

from typing import Tuple


class Credentials:
    """What requests are signed with. Nothing that is printed of it says what it holds.

    Args:
        key: the access key's id.
        secret: the secret key.
        token: the session token of temporary credentials; empty for others.
    """

    __slots__ = ("key", "secret", "token")

    def __init__(self, key: str, secret: str, token: str = "") -> None:
        self.key = key
        self.secret = secret
        self.token = token

    def __repr__(self) -> str:
        return "Credentials(…)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Credentials) and self._all() == other._all()

    def __hash__(self) -> int:
        return hash(self._all())

    def _all(self) -> Tuple[str, str, str]:
        return self.key, self.secret, self.token
