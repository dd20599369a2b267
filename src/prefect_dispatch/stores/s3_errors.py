"""The errors of the S3 clients, as what they mean: the one place where they become ours.

Nothing of a server's answer is shown but its status and code: some servers tell what they were sent, tokens included.
"""

from __future__ import annotations

import enum
import re
from typing import Optional, Tuple

from prefect_dispatch.errors import DispatchError
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.printable import printable


class Meaning(enum.Enum):
    """What became of a request."""

    ABSENT = "absent"
    """There is no such object, and the server says so."""
    EXISTS = "exists"
    """The name is taken; nothing was changed."""
    CONFLICT = "conflict"
    """Another request for the same name was under way; nothing was changed."""
    DENIED = "denied"
    """The credentials are wrong, have expired or do not allow it."""
    NO_BUCKET = "no bucket"
    """There is no such bucket."""
    UNANSWERED = "unanswered"
    """Nobody knows whether it had its effect."""
    REFUSED = "refused"
    """The server will not do that, however often it is asked."""


class Garbled(Exception):
    """An answer came, and it is not what was asked for: nobody knows what is there.

    Args:
        text: what it is instead, in words.
    """

    def __init__(self, text: str = "what it answered is not what was written there") -> None:
        super().__init__(text)


class Answered(Exception):
    """A server's answer that is no success.

    Args:
        status: its status.
        code: S3's own code in it; empty where there is none.
        location: where it sends us.
    """

    def __init__(self, status: int, code: str, location: str = "") -> None:
        super().__init__(status, code)
        self.status = status
        self.code = code
        self.location = location


@dataclass(frozen=True)
class Failure:
    """A request that failed.

    Args:
        meaning: what became of it.
        text: the same in words, fit to be shown.
        way_out: what to do, where that is known better than by its meaning.
    """

    meaning: Meaning
    text: str
    way_out: str = ""


_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>")
_PART = re.compile(r"DeleteObjects request failed for key .*\(code: ([A-Za-z0-9.]{1,64})\)")
"""What obstore says where a server's answer is a success and the deletion in it is none."""
_BY_CODE = {
    "NoSuchKey": Meaning.ABSENT,
    "NoSuchBucket": Meaning.NO_BUCKET,
    "PreconditionFailed": Meaning.EXISTS,
    "ConditionalRequestConflict": Meaning.CONFLICT,
    "OperationAborted": Meaning.CONFLICT,
    "RequestTimeTooSkewed": Meaning.DENIED,
    "ExpiredToken": Meaning.DENIED,
    "ExpiredTokenException": Meaning.DENIED,
    "InvalidToken": Meaning.DENIED,
    "TokenRefreshRequired": Meaning.DENIED,
    "InvalidAccessKeyId": Meaning.DENIED,
    "SignatureDoesNotMatch": Meaning.DENIED,
    "AccessDenied": Meaning.DENIED,
    "BadDigest": Meaning.UNANSWERED,
    "IncompleteBody": Meaning.UNANSWERED,
    "NotImplemented": Meaning.REFUSED,
    "RequestTimeout": Meaning.UNANSWERED,
    "SlowDown": Meaning.UNANSWERED,
    "XAmzContentSHA256Mismatch": Meaning.UNANSWERED,
}
_BY_STATUS = {
    401: Meaning.DENIED,
    403: Meaning.DENIED,
    409: Meaning.CONFLICT,
    412: Meaning.EXISTS,
    501: Meaning.REFUSED,
}
_CLOCK = "RequestTimeTooSkewed"
_FULL = re.compile(r"quota|storagefull|capacity", re.IGNORECASE)
_WHEN_FULL = "it has no room for this: free some, or have its quota raised"
_WHEN_FORBIDDEN = (
    "these credentials may not do that: check the key, and its permissions on the objects below the root and "
    "s3:ListBucket on the bucket, without which a missing object is forbidden too"
)
_NO_TLS = "write http:// in the endpoint, or name the port that speaks https"
_START_IT = "start it, or name another endpoint"
_DEFECTS = (TypeError, AttributeError, NameError, LookupError, AssertionError, ArithmeticError)


def failure_of(error: BaseException) -> Failure:
    """What an error of obstore, or of s3fs and botocore below it, means.

    Raises:
        BaseException: it is none of these: an error of ours, somebody's wish to end this process, or a defect of this
            package, which must not look like a server's fault.
    """
    if isinstance(error, (DispatchError, *_DEFECTS)) or not (isinstance(error, Exception) or is_panic(error)):
        raise error
    if isinstance(error, Garbled):
        return Failure(Meaning.UNANSWERED, str(error))
    if isinstance(error, Answered):
        return _of_answer(error.status, error.code)
    if is_panic(error):
        return Failure(Meaning.REFUSED, "its client broke on it")
    text = str(error)
    response = getattr(error.__cause__ or error, "response", None)
    if isinstance(response, dict):
        status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
        code = str(response.get("Error", {}).get("Code", ""))
        return _of_answer(status, code)
    found = _STATUS.search(text)
    if found is not None:
        return _of_answer(int(found.group(1)), code_in(text))
    part = _PART.search(text)
    if part is not None:
        return _of_answer(200, part.group(1))
    return Failure(Meaning.UNANSWERED, *_describe_silence(error, text))


def code_in(text: str) -> str:
    """S3's own code in the text of an answer; empty where there is none."""
    named = _CODE.search(text)
    return named.group(1) if named is not None else ""


def is_panic(error: BaseException) -> bool:
    """Whether an error is a defect of obstore's own, which Python's ``Exception`` does not cover."""
    return type(error).__name__ == "PanicException"


def _of_answer(status: int, code: str) -> Failure:
    code = printable(code, 64)
    text = f"the server answered {status}{f' {code}' if code and code != str(status) else ''}"
    if _FULL.search(code):
        return Failure(Meaning.REFUSED, text, _WHEN_FULL)
    meaning: Optional[Meaning] = _BY_CODE.get(code) or _BY_STATUS.get(status)
    if meaning is None:
        # A 404 that does not say what is missing may be a proxy's: it does not tell that the object is not there.
        meaning = Meaning.REFUSED if 300 <= status < 500 and status not in (404, 408, 429) else Meaning.UNANSWERED
    if code == _CLOCK:
        text += "; this host's clock is wrong"
    return Failure(meaning, text, _WHEN_FORBIDDEN if code == "AccessDenied" or (status == 403 and not code) else "")


def _describe_silence(error: BaseException, text: str) -> Tuple[str, str]:
    """Why there is no answer, by the words that the clients use for it, and what to do where that is clear."""
    lower = text.lower()
    for word, told, way_out in (
        ("timed out", "it did not answer in time", ""),
        ("timedout", "it did not answer in time", ""),
        ("read timeout", "it did not answer in time", ""),
        ("connect timeout", "it did not answer in time", ""),
        ("dns", "its host's name is not known", "check the endpoint"),
        ("name or service not known", "its host's name is not known", "check the endpoint"),
        ("connection refused", "nobody listens there", _START_IT),
        ("connectionrefused", "nobody listens there", _START_IT),
        ("wrong_version_number", "it does not speak TLS", _NO_TLS),
        ("wrong version number", "it does not speak TLS", _NO_TLS),
        ("record_layer_failure", "it does not speak TLS", _NO_TLS),
        ("record layer failure", "it does not speak TLS", _NO_TLS),
        ("invalidcontenttype", "it does not speak TLS", _NO_TLS),
        ("certificate", "its certificate is not trusted", "see AWS_CA_BUNDLE"),
        ("invalid list response", "it answered with what is no listing", ""),
        ("error decoding response body", "its answer broke off", ""),
        ("end of file before message", "its answer broke off", ""),
        ("connection closed", "its answer broke off", ""),
        ("remote end closed", "its answer broke off", ""),
    ):
        if word in lower:
            return told, way_out
    return f"it could not be asked ({type(error).__name__})", ""
