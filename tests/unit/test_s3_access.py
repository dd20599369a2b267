"""Access to object stores: whose credentials, which endpoint, and nothing mixed of two."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefect_dispatch.errors import StoreError, StoreUnreachable, UsageError
from prefect_dispatch.stores.s3_access import S3Access
from prefect_dispatch.stores.s3_accesses import access_for, use_access, variables_for
from prefect_dispatch.stores.s3_bucket import S3Bucket
from prefect_dispatch.stores.s3_credentials import Credentials
from prefect_dispatch.stores.s3_endpoint import check_endpoint
from prefect_dispatch.stores.s3_environment import access_of_environment

KEYS = {"AWS_ACCESS_KEY_ID": "one", "AWS_SECRET_ACCESS_KEY": "two"}


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An environment in which botocore finds nothing but what a test puts there."""
    import os

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return tmp_path


def give(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name, value in {**KEYS, **variables}.items():
        monkeypatch.setenv(name, value)


def test_the_environments_keys_and_endpoint_are_taken_as_one(monkeypatch: pytest.MonkeyPatch, nothing: Path) -> None:
    give(monkeypatch, AWS_ENDPOINT_URL="http://one:9000/", AWS_REGION="here")
    access = access_of_environment()
    assert (access.endpoint, access.region) == ("http://one:9000", "here")
    assert access.credentials() == Credentials("one", "two")


def test_without_an_endpoint_it_is_amazons_whatever_else_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    # given an endpoint in this process's environment, which is not this access's
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://elsewhere:9000")
    access = S3Access("", "eu-central-1", lambda again: Credentials("a", "b", "token"))
    # then neither client would send the token there
    assert access.endpoint == "https://s3.eu-central-1.amazonaws.com"
    assert access.filesystem(access.credentials()).endpoint_url == access.endpoint
    assert "elsewhere" not in repr(access.bucket("bucket", access.credentials()))


def test_keys_in_the_environment_go_with_the_profiles_region_and_endpoint(
    nothing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given keys in the environment, and what else is to be known in the default profile
    give(monkeypatch)
    (nothing / "config").write_text("[default]\nregion = here\nendpoint_url = http://lab:9000\n")
    # when / then
    access = access_of_environment()
    assert (access.endpoint, access.region) == ("http://lab:9000", "here")
    assert access.credentials() == Credentials("one", "two")
    # and what the environment says comes first
    give(monkeypatch, AWS_REGION="there")
    assert (access_of_environment().endpoint, access_of_environment().region) == ("http://lab:9000", "there")


@pytest.mark.parametrize("text", ["[profile other]\nregion = here\n", "[profile lab\nhidden = no"])
def test_a_profile_that_cannot_be_used_is_told_by_its_name(
    text: str, nothing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a profile that is not there, or whose file is none
    monkeypatch.setenv("AWS_PROFILE", "lab")
    (nothing / "config").write_text(text)
    # when / then
    with pytest.raises(UsageError, match=r"'lab'.*AWS_CONFIG_FILE") as refusal:
        access_of_environment()
    assert "hidden" not in str(refusal.value)


def test_a_library_that_is_missing_is_told_as_what_it_is(nothing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    # given a machine without botocore
    for name in [name for name in sys.modules if name.partition(".")[0] == "botocore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "botocore", None)
    # when / then
    with pytest.raises(StoreUnreachable, match="not installed here"):
        access_of_environment()
    monkeypatch.setenv("AWS_REGION", "here")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://lab:9000")
    with pytest.raises(StoreUnreachable, match="not installed here"):
        access_of_environment().credentials()


def test_a_profile_is_read_and_its_renewed_keys_are_picked_up(nothing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a profile with temporary keys, an endpoint and a region
    monkeypatch.setenv("AWS_PROFILE", "lab")
    (nothing / "config").write_text("[profile lab]\nregion = here\nendpoint_url = http://lab:9000\n")
    file = nothing / "credentials"
    text = "[lab]\naws_access_key_id = one\naws_secret_access_key = two\naws_session_token = {}\n"
    file.write_text(text.format("first"))
    access = access_of_environment()
    assert (access.endpoint, access.region) == ("http://lab:9000", "here")
    assert access.credentials().token == "first"
    before, first = access.filesystem(access.credentials()), access.credentials()
    # when somebody renews them, and a request is denied
    file.write_text(text.format("second"))
    assert access.renew(first)
    # then both clients have the new ones
    assert access.credentials().token == "second"
    assert access.filesystem(access.credentials()) is not before
    assert access.filesystem(access.credentials()).token == "second"
    # and whoever was denied with the old ones at the same time has them too, but who has no others is told so
    assert access.renew(first)
    assert not access.renew(access.credentials())


def test_no_credentials_at_all_are_told_with_what_to_set(nothing: Path) -> None:
    with pytest.raises(StoreUnreachable, match="AWS_ACCESS_KEY_ID"):
        access_of_environment().credentials()


def test_a_root_is_reached_as_was_told_for_it_and_its_job_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "environment's")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "environment's")
    told = S3Access("https://told", "there", lambda again: Credentials("key", "secret", "token"))
    use_access("s3://bucket/told/", told)
    assert access_for("s3://bucket/told/digits") is told
    assert access_for("s3://bucket/told-not").credentials() == Credentials("environment's", "environment's")
    assert variables_for("s3://bucket/told/digits") == {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SESSION_TOKEN": "token",
        "AWS_ENDPOINT_URL": "https://told",
        "AWS_ENDPOINT_URL_S3": "https://told",
        "AWS_REGION": "there",
        "AWS_DEFAULT_REGION": "there",
    }
    assert variables_for("s3://bucket/other") == {}


def test_credentials_never_show_what_they_are() -> None:
    assert "secret" not in f"{Credentials('key', 'secret', 'token')!r} {Credentials('key', 'secret')}"


@pytest.mark.parametrize("name", ["key", "secret", "token"])
@pytest.mark.parametrize("end", ["\n", "\r", "\0", "\x1b", "é"])
def test_credentials_that_no_request_can_carry_are_told_without_them(name: str, end: str) -> None:
    given = {"key": "one", "secret": "two", "token": "three"}
    given[name] += end
    access = S3Access("http://host", "", lambda again: Credentials(**given))
    for ask in (access.credentials, lambda: access.renew(Credentials("an", "other"))):
        with pytest.raises(StoreUnreachable, match="no request can carry") as refusal:
            ask()
        assert not [value for value in given.values() if value in str(refusal.value)]


def test_a_region_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, nothing: Path) -> None:
    give(monkeypatch, AWS_REGION="us-east-1\n")
    with pytest.raises(UsageError, match="region"):
        access_of_environment()


def test_a_client_that_breaks_is_an_error_of_the_store() -> None:
    # given what obstore raises where its own code fails, which is no Exception
    class PanicException(BaseException):
        pass

    def ask() -> None:
        raise PanicException("at src/lib.rs, with what it was given")

    bucket = S3Bucket("bucket", S3Access("http://host", "", lambda again: Credentials("a", "b")))
    # when / then
    with pytest.raises(StoreError, match="its client broke") as failure:
        bucket.ask(ask, "key")
    assert "lib.rs" not in str(failure.value)


@pytest.mark.parametrize("endpoint", ["host:9000", "ftp://host", "http://", "http://user:hidden@host", "http://h:x"])
def test_an_endpoint_that_is_no_url_is_refused_without_showing_a_password(endpoint: str) -> None:
    with pytest.raises(UsageError, match="endpoint") as refusal:
        check_endpoint(endpoint)
    assert "hidden" not in str(refusal.value)


def test_a_patience_that_is_none_is_refused_by_its_variable(monkeypatch: pytest.MonkeyPatch, nothing: Path) -> None:
    give(monkeypatch, DISPATCH_S3_TIMEOUT="soon")
    with pytest.raises(UsageError, match="DISPATCH_S3_TIMEOUT"):
        access_of_environment()
