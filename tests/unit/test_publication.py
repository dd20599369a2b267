"""A publication's name says exactly what was published, and orders as (epoch, step, path)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from prefect_dispatch.errors import MalformedName, UsageError
from prefect_dispatch.format.epoch import MAX_GENERATION, Epoch
from prefect_dispatch.format.names import encode_part
from prefect_dispatch.format.printable import printable
from prefect_dispatch.format.publication import MAX_STEP, RANK_LENGTH, Publication, check_forms

parts = some.text(some.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=10)
paths = some.lists(parts.filter(lambda part: part not in (".", "..")), min_size=1, max_size=3).map("/".join)
publications = some.builds(
    Publication,
    some.builds(Epoch, some.integers(0, MAX_GENERATION), some.integers(1, 999_999), some.integers(0, 999_999)),
    some.integers(0, MAX_STEP),
    paths,
)
# Few values, so that epochs and steps are often equal and the next part has to decide.
near = some.builds(
    Publication,
    some.builds(Epoch, some.integers(0, 1), some.integers(1, 2), some.integers(0, 1)),
    some.sampled_from([0, 9, 10, 100]),
    some.sampled_from(["a", "b", "Z", "é", "\U00010000", "\uffff"]),
)


@given(publications)
def test_a_publication_survives_its_name(publication: Publication) -> None:
    assert Publication.parse(publication.name) == publication
    assert len(publication.name.encode("ascii")) <= 255


@given(near, near)
def test_publications_order_by_epoch_then_step_then_path_bytes(one: Publication, other: Publication) -> None:
    def place(publication: Publication) -> tuple[int, int, int, int, bytes]:
        epoch = publication.epoch
        return epoch.generation, epoch.submission, epoch.restart, publication.step, publication.path.encode()

    assert (one.order < other.order) is (place(one) < place(other))
    assert (one.name == other.name) is (one == other)


def test_a_path_of_133_bytes_fits_and_one_of_134_is_refused() -> None:
    assert len(Publication(Epoch(0, 1, 0), 1, "a" * 133).name) == 255
    with pytest.raises(UsageError, match="134 bytes"):
        Publication(Epoch(0, 1, 0), 1, "a" * 134)


@pytest.mark.parametrize("step", [-1, 2**63, True, 1.0, "1"])
def test_steps_out_of_their_range_are_refused(step: int) -> None:
    with pytest.raises(UsageError, match=r"^step .* is out of range"):
        Publication(Epoch(0, 1, 0), step, "a")


EPOCH, STEP = "00000000000001000000", "00000000000000000040"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "three parts"),
        (f"{EPOCH}-{STEP}", "three parts"),
        (f"{EPOCH}-{STEP}-ME-ME", "three parts"),
        (f"{EPOCH}-{STEP}-ME.tmp", "not base32"),
        (f"{EPOCH}-{STEP}-", "not base32"),
        (f"{EPOCH}-{STEP}-me", "not base32"),
        (f"{EPOCH[1:]}-{STEP}-ME", "20 digits"),
        (f"{EPOCH}-{STEP[1:]}-ME", "step .* 20 digits"),
        (f"{EPOCH}-{'9' * 20}-ME", "step .* out of range"),
        (f"{'0' * 20}-{STEP}-ME", "submission 0"),
        (f"{'9' * 20}-{STEP}-ME", "generation"),
        (f"{EPOCH}-{STEP}-{encode_part('../a')}", "normalised"),
        (f"{EPOCH}-{STEP}-{encode_part('/a')}", "normalised"),
        (f"{EPOCH}-{STEP}-{encode_part('a' + chr(0))}", "NUL"),
        (f"{EPOCH}-{STEP}-{encode_part('a' * 134)}", "134 bytes"),
        (f"{EPOCH}-{STEP}-ME\n", "not base32"),
        ("\x1b[2J\nfine", "three parts"),
    ],
)
def test_other_names_are_malformed_and_named_in_one_printable_line(name: str, why: str) -> None:
    with pytest.raises(MalformedName, match=why) as malformed:
        Publication.parse(name)
    text = str(malformed.value)
    assert text.startswith("pub/") and text.isprintable() and "move it away" in text


@given(some.lists(some.one_of(publications, near), max_size=5))
def test_every_publication_has_the_form_of_one(listed: list[Publication]) -> None:
    check_forms([publication.name for publication in listed])


@pytest.mark.parametrize(
    "name",
    [
        "",
        f"{EPOCH}-{STEP}",
        f"{EPOCH}-{STEP}-",
        f"{EPOCH}-{STEP}-me",
        f"{EPOCH}-{STEP}-ME\n",
        f"{EPOCH}-{STEP}-ME\n{EPOCH}-{STEP}-ME",
        f"{EPOCH[1:]}-{STEP}-ME",
        f"{EPOCH}-{STEP[1:]}-ME",
        f"{'0' * 20}-{STEP}-ME",
        f"00000001{'0' * 6}000001-{STEP}-ME",
        f"{MAX_GENERATION + 1:08d}000001000000-{STEP}-ME",
        f"{EPOCH}-{MAX_STEP + 1:020d}-ME",
        "garbage",
    ],
)
def test_one_name_without_the_form_is_found_among_others(name: str) -> None:
    fine = [Publication(Epoch(0, 1, 0), step, "a").name for step in range(3)]
    with pytest.raises(MalformedName) as malformed:
        check_forms([*fine, name, *fine])
    assert printable(name) in str(malformed.value)


@given(some.lists(near, min_size=2, max_size=2))
def test_names_are_ordered_by_their_text_wherever_epoch_or_step_differ(two: list[Publication]) -> None:
    one, other = two
    if one.order[:2] != other.order[:2]:
        assert (one.name[:RANK_LENGTH] < other.name[:RANK_LENGTH]) == (one.order < other.order)
    else:
        assert one.name[:RANK_LENGTH] == other.name[:RANK_LENGTH]
