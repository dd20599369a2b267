"""Where the fields of an identity come from, when two identities are the same run, and what a plan says of it."""

from __future__ import annotations

import pytest

from prefect_dispatch.errors import UsageError
from prefect_dispatch.format.identity import (
    UNSET,
    Provider,
    ProviderKind,
    compare_identity,
    literal_text,
    short_digest,
)
from prefect_dispatch.model.plan import Reference, plan
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.pictures.tables import identity_table
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED


def spec_of(**identity: object) -> JobSpec:
    return JobSpec.read({"lineage": "digits", "command": ["x"], "identity": identity}, "job")


@pytest.mark.parametrize(
    ("text", "kind", "argument"),
    [
        ("file:cfg.yaml", ProviderKind.FILE, "cfg.yaml"),
        ("file:/data/a b/é\n[x]", ProviderKind.FILE, "/data/a b/é\n[x]"),
        ("file:../shared:2", ProviderKind.FILE, "../shared:2"),
        ("git:.", ProviderKind.GIT, "."),
        ("env:USER", ProviderKind.ENV, "USER"),
    ],
)
def test_a_provider_is_its_word_and_the_rest(text: str, kind: ProviderKind, argument: str) -> None:
    provider = Provider.parse(text)
    assert provider == Provider(kind, argument)
    assert str(provider) == text


@pytest.mark.parametrize(
    "text", ["", "7", "file", "FILE:x", " file:x", "files:x", "https://x", "literal:file:x", "s3:x"]
)
def test_any_other_text_is_a_literal(text: str) -> None:
    assert Provider.parse(text) is None


@pytest.mark.parametrize("text", ["file:", "git:", "env:", "env:A=B", "env:DISPATCH_EPOCH", "file:a\0b"])
def test_a_provider_that_names_nothing_is_refused_with_the_way_to_write_the_text_itself(text: str) -> None:
    with pytest.raises(UsageError, match=f"literal:{text[:3]}"):
        Provider.parse(text)


def test_a_text_that_would_be_a_provider_can_be_meant_as_it_is() -> None:
    assert literal_text("literal:file:x") == "file:x"
    assert literal_text("literal:literal:x") == "literal:x"
    assert literal_text("x") == "x"
    # and in a spec it is a literal like another
    meant = spec_of(a="literal:file:x", b="literal:git", c="git")
    assert meant.identity_providers() == {}
    digests = meant.identity_digests()
    assert digests["b"] == digests["c"] != digests["a"]


def test_a_spec_keeps_literals_and_providers_apart() -> None:
    spec = spec_of(code="git:.", seed=7, user="env:USER")
    assert spec.identity_providers() == {"code": "git:.", "user": "env:USER"}
    assert spec.identity_digests().keys() == {"seed"}


@pytest.mark.parametrize(
    ("expected", "found", "fields", "tolerated"),
    [
        ({"a": "1"}, {"a": "1"}, (), False),
        ({"a": "1", "b": "1"}, {"b": "2"}, ("a", "b"), False),
        ({}, {"a": "1"}, ("a",), False),
        ({"code": "1"}, {"code": "2"}, ("code",), False),
        ({"code": "1", "checkpoint_schema": "3"}, {"code": "2", "checkpoint_schema": "3"}, ("code",), True),
        ({"code": "1", "checkpoint_schema": UNSET}, {"code": "2", "checkpoint_schema": UNSET}, ("code",), False),
        (
            {"code": "1", "checkpoint_schema": "3"},
            {"code": "2", "checkpoint_schema": "4"},
            ("checkpoint_schema", "code"),
            False,
        ),
        (
            {"code": "1", "seed": "1", "checkpoint_schema": "3"},
            {"code": "2", "seed": "2", "checkpoint_schema": "3"},
            ("code", "seed"),
            False,
        ),
    ],
)
def test_code_alone_may_differ_and_only_with_a_declared_schema(expected, found, fields, tolerated) -> None:
    difference = compare_identity(expected, found)
    assert (difference.fields, difference.tolerated) == (fields, tolerated)


@pytest.mark.parametrize(
    ("digest", "shown"),
    [
        ("sha256:0123456789abcdef", "sha256:0123456789ab"),
        ("git:0123456789abcdef+fedcba9876543210", "git:0123456789ab+fedcba987654"),
        ("unset", "unset"),
    ],
)
def test_a_digest_is_shown_by_its_beginning(digest: str, shown: str) -> None:
    assert short_digest(digest) == shown


def test_a_plan_says_where_each_field_comes_from_and_what_it_is_held_against() -> None:
    # given a supervisor that cannot see the job's folder
    spec = spec_of(seed=7, config="file:cfg.yaml", user="env:USER")
    unseen = {"config": "this supervisor cannot see /far"}
    # when
    planned = plan(spec, SCRIPTED, root_visible=True, unseen=unseen)
    rows = identity_table(planned, {"seed": "sha256:0123456789abcdef", "user": UNSET})
    # then
    assert [row.reference for row in planned.identity] == [
        Reference.SPEC,
        Reference.FIRST_EXECUTION,
        Reference.OPENING,
    ]
    assert [list(row.values()) for row in rows] == [
        ["seed", "literal", "sha256:0123456789ab", "the spec", ""],
        ["config", "file:cfg.yaml", "", "the first execution", "this supervisor cannot see /far"],
        ["user", "env:USER", "unset", "the opening", ""],
    ]
    # and the value of a literal is nowhere in it
    assert "7" not in rows[0].values()


def test_a_changed_identity_of_a_spec_is_told_field_by_field() -> None:
    one = spec_of(code="git:.", seed=1, a="x", flag=True)
    other = spec_of(code="git:src", seed=1, b="x", flag=1)
    assert one.differences(other) == ("identity.a", "identity.b", "identity.code", "identity.flag")
