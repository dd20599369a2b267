"""What a bucket really holds, asked by a client that is none of ours and past every proxy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Direct:
    """A place in a bucket; keys are relative to it.

    Args:
        client: a boto3 client.
        bucket: the bucket's name.
        prefix: what the keys of this place begin with, without the slash that follows.
    """

    client: Any
    bucket: str
    prefix: str

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    def keys(self, below: str = "") -> list[str]:
        """The keys in bytes' order."""
        start = len(self.prefix) + 1
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self._key(below))
        return [entry["Key"][start:] for page in pages for entry in page.get("Contents", ())]

    def get(self, key: str) -> bytes:
        body: bytes = self.client.get_object(Bucket=self.bucket, Key=self._key(key))["Body"].read()
        return body

    def put(self, key: str, content: bytes = b"") -> None:
        self.client.put_object(Bucket=self.bucket, Key=self._key(key), Body=content)

    def delete(self, *keys: str) -> None:
        for key in keys:
            self.client.delete_object(Bucket=self.bucket, Key=self._key(key))

    def unfinished_uploads(self) -> list[str]:
        answer = self.client.list_multipart_uploads(Bucket=self.bucket, Prefix=self._key(""))
        return [upload["Key"] for upload in answer.get("Uploads", ())]

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{key}"
