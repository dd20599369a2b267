"""A page of a listing as the server's own words: what is no listing, or part of one, is never taken for an empty one.

The client for ledgers takes any XML for a listing, an error or a login page within a 200 for one with nothing in it.
So the end of each of its listings is asked for once more, in this way.
"""

from __future__ import annotations

import re
from typing import Dict, Mapping, Tuple
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
_KEY = re.compile(r"<Key>([^<]*)</Key>")
_PREFIX = re.compile(r"<CommonPrefixes>\s*<Prefix>([^<]*)</Prefix>\s*</CommonPrefixes>")
_QUOTES = {"&quot;": '"', "&apos;": "'", "&#34;": '"', "&#39;": "'", "&#xD;": "\r", "&#xA;": "\n", "&#x9;": "\t"}


@dataclass(frozen=True)
class ListingPage:
    """One page.

    Args:
        keys: the keys of objects.
        prefixes: the folders, where the listing was not to go into them, each with its '/'.
        behind: what asks for the next page; empty for the last one.
    """

    keys: Tuple[str, ...]
    prefixes: Tuple[str, ...]
    behind: str

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
            tuple(unescape(key, _QUOTES) for key in _KEY.findall(text)),
            tuple(unescape(prefix, _QUOTES) for prefix in _PREFIX.findall(text)),
            unescape(behind.group(1), _QUOTES) if behind is not None and truncated.group(1) == "true" else "",
        )


def query_of(parameters: Mapping[str, str]) -> str:
    """The query that asks for a page, in the order and the spelling that are signed."""
    given: Dict[str, str] = {"list-type": "2", **{name: value for name, value in parameters.items() if value}}
    return "&".join(f"{name}={quote(value, safe='-_.~')}" for name, value in sorted(given.items()))
