"""Signs of life of processes that carry lineages."""

from __future__ import annotations

from datetime import timedelta

from prefect_dispatch.supervisor.beats import BEAT_EVERY, VOUCH_EVERY, Heart, last_beats, sweep_beats, vouch
from prefect_dispatch.supervisor.places import open_beats, open_polls
from prefect_dispatch.supervisor.polls import POLL_CESSATION, last_poll, note_poll
from prefect_dispatch.testing.manual_clock import ManualClock


def test_each_process_has_one_sign_which_ends_with_it_and_not_before(tmp_path):
    # given two processes of one lineage, and one of another
    root, clock = str(tmp_path), ManualClock()
    hearts = [Heart(root, lineage, who, clock) for lineage, who in (("a", "x-1"), ("a", "x-2"), ("b-c", "process-7"))]
    # when they beat for a while, and one of them is killed in between
    for number in range(5):
        for heart in hearts[: 3 if number < 2 else 2]:
            heart.beat()
            heart.beat()
        clock.turn(BEAT_EVERY)
    # then each has its newest
    beats = last_beats(root)
    now = clock.now()
    ages = {key: round((now - at) / BEAT_EVERY) for key, at in beats.items()}
    assert ages == {("a", "x-1"): 1, ("a", "x-2"): 1, ("b-c", "process-7"): 4}
    assert len(open_beats(root).names()) == 3
    # when one ends, and old ones are swept
    hearts[0].stop()
    sweep_beats(root, now - 3 * BEAT_EVERY)
    # then
    assert set(last_beats(root)) == {("a", "x-2")}


def test_one_sign_at_a_time_is_given_for_a_run_that_waits(tmp_path):
    # given a run of which nothing lives, and a poller that looks every half of the time
    root, clock = str(tmp_path), ManualClock()
    begun, seen = clock.now(), []
    for _ in range(5):
        vouch(root, "a", "x", last_beats(root).get(("a", "x")), clock.now())
        seen.append((last_beats(root)["a", "x"] - begun) / VOUCH_EVERY)
        clock.turn(VOUCH_EVERY / 2)
    # then
    assert [round(each, 1) for each in seen] == [0, 0, 1, 1, 2]
    assert len(open_beats(root).names()) == 1


def test_what_is_no_sign_and_a_root_that_is_away_end_nobody(tmp_path):
    root, clock = str(tmp_path / "root"), ManualClock()
    Heart(root, "a", "x", clock).beat()
    assert not (tmp_path / "root").exists()
    (tmp_path / "root").mkdir()
    for name in ("nonsense", "a.b.123", "a.b.999999999999999999999", f"a..{0:020d}", f"a.b.{10**19:020d}"):
        open_beats(root).create(name)
    assert last_beats(root) == {}
    sweep_beats(root, clock.now() - timedelta(days=1))
    assert open_beats(root).names() == []


def test_a_time_that_there_is_not_hides_no_poll(tmp_path):
    # given a poll that is noted, and names of the same form that no poller has written
    root, at = str(tmp_path), ManualClock().now()
    note_poll(root, POLL_CESSATION, at)
    for number in (10**13, 10**17, 10**19):
        open_polls(root).create(f"{POLL_CESSATION}-{number:020d}")
    open_polls(root).create(f"{POLL_CESSATION}-1{0:020d}")
    # then it is found
    assert last_poll(root, POLL_CESSATION) == at
    # and the next one leaves itself alone
    note_poll(root, POLL_CESSATION, at + timedelta(minutes=1))
    assert len(open_polls(root).names()) == 1
