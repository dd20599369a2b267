"""The upload of one file: an object is created of its bytes, or nothing; what is there is never written over."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any, Awaitable, Callable, Dict, List

from prefect_dispatch.stores.s3_reading import Part, Reading

Request = Callable[[Any], Awaitable[Any]]
"""Makes a request by s3fs' file system."""
_PARTS_AT_ONCE = 4
_KIND = {"ContentType": "application/octet-stream"}


async def send(
    bucket: str,
    key: str,
    reading: Reading,
    moved: Callable[[int], None],
    now: Callable[[], Awaitable[Any]],
    again: Callable[[Request], Awaitable[Any]],
) -> str:
    """Create an object of a file's bytes; one that is there fails the request that would complete it.

    Args:
        bucket: the bucket.
        key: the object's key, which must not be there.
        reading: the file, from its beginning.
        moved: is told of the bytes that the server has, part by part.
        now: s3fs' file system with the credentials of now, whose session, retries and errors these requests have.
        again: makes the request for one part, again where it fails: one of very many must not cost the others.

    Returns:
        The tag of the object that the server says it has created.

    Raises:
        KeyError: something answered with success and without a tag, which no server does that has created the object.
    """
    loop = asyncio.get_running_loop()
    target = {"Bucket": bucket, "Key": key}
    if reading.is_one_part:
        part, tag = await loop.run_in_executor(None, reading.take_only)
        answer = await (await now())._call_s3(
            "put_object", Body=part.content, ContentMD5=tag, IfNoneMatch="*", **target, **_KIND
        )
        moved(len(part.content))
        return _tag_in(answer)
    begun = await (await now())._call_s3("create_multipart_upload", **target, **_KIND)
    upload = {**target, "UploadId": begun["UploadId"]}
    try:
        parts = await _send_parts(upload, reading, moved, again)
        # Parts take long: by now there may be other credentials than at the beginning.
        answer = await (await now())._call_s3(
            "complete_multipart_upload", MultipartUpload={"Parts": parts}, IfNoneMatch="*", **upload
        )
    except Exception:
        # What it failed with is what counts, and whether its parts are taken away is a matter of cost.
        with suppress(Exception):
            await (await now())._call_s3("abort_multipart_upload", **upload)
        raise
    return _tag_in(answer)


def _tag_in(answer: Dict[str, Any]) -> str:
    tag: str = answer["ETag"]
    return tag.strip('"')


async def _send_parts(
    upload: Dict[str, str], reading: Reading, moved: Callable[[int], None], again: Callable[[Request], Awaitable[Any]]
) -> List[Dict[str, Any]]:
    loop = asyncio.get_running_loop()
    turn = asyncio.Lock()
    sent: List[Dict[str, Any]] = []

    async def send_some() -> None:
        while True:
            async with turn:
                part = await loop.run_in_executor(None, reading.take)
            if part is None:
                return
            tag = await loop.run_in_executor(None, reading.tag, part)
            received = await again(partial(_send_part, part, tag, upload))
            moved(len(part.content))
            sent.append({"PartNumber": part.number, "ETag": received})

    senders = [asyncio.ensure_future(send_some()) for _ in range(_PARTS_AT_ONCE)]
    try:
        await asyncio.gather(*senders)
    finally:
        # A part that is still on its way would outlive the end of its upload.
        for sender in senders:
            sender.cancel()
        await asyncio.gather(*senders, return_exceptions=True)
    return sorted(sent, key=lambda part: int(part["PartNumber"]))


async def _send_part(part: Part, tag: str, upload: Dict[str, str], filesystem: Any) -> str:
    answer = await filesystem._call_s3(
        "upload_part", PartNumber=part.number, Body=part.content, ContentMD5=tag, **upload
    )
    received: str = answer["ETag"]
    return received
