"""Signing a request anew, for a proxy that changes it or that stands for another authority than the server."""

from __future__ import annotations

from dataclasses import replace

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from support.s3.messages import Request

REGION = "us-east-1"
_SIGNED = ("authorization", "x-amz-date", "x-amz-security-token", "expect", "connection", "transfer-encoding", "accept")


def sign_anew(request: Request, body: bytes, key: str, secret: str) -> Request:
    """The same request, signed with a key of the server's."""
    plain = request.without(*_SIGNED, "content-length", "user-agent", "x-amz-content-sha256")
    aws = AWSRequest(
        plain.method, f"http://{plain.header('host')}{plain.target}", data=body, headers=dict(plain.headers)
    )
    S3SigV4Auth(Credentials(key, secret), "s3", REGION).add_auth(aws)
    return replace(request, headers=tuple((name, str(value)) for name, value in aws.headers.items()))
