"""A page of a listing as the server's own words: what is no listing, or part of one, is never taken for an empty one.

The client for ledgers takes any XML for a listing, an error or a login page within a 200 for one with nothing in it.
So the first page of each listing is read in this way, most often the only one; and behind what that client lists, its
end.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Dict, List, Mapping, Tuple
from urllib.parse import quote
from xml.sax.saxutils import unescape

from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.stores.s3_errors import Garbled

_NO_LISTING = "it answered with what is no listing"
_WHOLE = re.compile(
    rb"\A(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*\?>)?\s*<((?:\w+:)?ListBucketResult)(?:\s[^>]*)?>.*</\1>\s*\Z", re.DOTALL
)
_TRUNCATED = re.compile(r"<IsTruncated>\s*(true|false)\s*</IsTruncated>")
_NEXT = re.compile(r"<NextContinuationToken>([^<]*)</NextContinuationToken>")
_CONTENTS = re.compile(r"<Contents>(.*?)</Contents>", re.DOTALL)
_KEY = re.compile(r"<Key>([^<]+)</Key>")
_SIZE = re.compile(r"<Size>\s*([0-9]+)\s*</Size>")
_CHANGED = re.compile(r"<LastModified>\s*([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})[^<]*</LastModified>")
_TAG = re.compile(r"<ETag>([^<]*)</ETag>")
_PREFIX = re.compile(r"<CommonPrefixes>\s*<Prefix>([^<]*)</Prefix>\s*</CommonPrefixes>")
_QUOTES = {"&quot;": '"', "&apos;": "'", "&#34;": '"', "&#39;": "'", "&#xD;": "\r", "&#xA;": "\n", "&#x9;": "\t"}


@dataclass(frozen=True)
class Listed:
    """An object as a listing shows it.

    Args:
        key: its whole key.
        size: its bytes.
        changed: when it was written, by the server's clock.
        tag: the server's own tag of its bytes, without quotes; empty where it has none.
    """

    key: str
    size: int
    changed: datetime
    tag: str


@dataclass(frozen=True)
class ListingPage:
    """One page.

    Args:
        entries: the objects, with those that some tools put there for folders, whose keys end with '/'.
        prefixes: the folders, where the listing was not to go into them, each with its '/'.
        behind: what asks for the next page; empty for the last one.
    """

    entries: Tuple[Listed, ...]
    prefixes: Tuple[str, ...]
    behind: str

    @property
    def names(self) -> List[Listed]:
        """The objects that stand for no folder."""
        return [one for one in self.entries if not one.key.endswith("/")]

    @classmethod
    def read(cls, body: bytes) -> ListingPage:
        """Read the answer to ListObjectsV2.

        Raises:
            Garbled: it is none, or not all of one.
        """
        try:
            text = body.decode("utf-8")
        except ValueError:
            raise Garbled(_NO_LISTING) from None
        truncated = _TRUNCATED.search(text)
        if _WHOLE.match(body) is None or truncated is None:
            raise Garbled(_NO_LISTING)
        behind = _NEXT.search(text)
        if (truncated.group(1) == "true") is not (behind is not None and bool(behind.group(1))):
            raise Garbled(_NO_LISTING)
        return cls(
            tuple(map(_listed, _CONTENTS.findall(text))),
            tuple(unescape(prefix, _QUOTES) for prefix in _PREFIX.findall(text)),
            unescape(behind.group(1), _QUOTES) if behind is not None and truncated.group(1) == "true" else "",
        )


def _listed(text: str) -> Listed:
    key, size, changed, tag = (each.search(text) for each in (_KEY, _SIZE, _CHANGED, _TAG))
    if key is None or size is None or changed is None:
        raise Garbled(_NO_LISTING)
    return Listed(
        unescape(key.group(1), _QUOTES),
        int(size.group(1)),
        datetime.fromisoformat(f"{changed.group(1)}+00:00"),
        "" if tag is None else unescape(tag.group(1), _QUOTES).strip('"'),
    )


def query_of(parameters: Mapping[str, str]) -> str:
    """The query that asks for a page, in the order and the spelling that are signed."""
    given: Dict[str, str] = {"list-type": "2", **{name: value for name, value in parameters.items() if value}}
    return "&".join(f"{name}={quote(value, safe='-_.~')}" for name, value in sorted(given.items()))
