"""The state of git working trees: real repositories, in every shape, and with configurations that want to be run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from prefect_dispatch.errors import IdentityUnknown
from prefect_dispatch.stores import git_state
from prefect_dispatch.stores.git_state import state_of_repository
from support.environment import environment_without

NAMES = ["a b", "[x]", "é", "e\u0301", "with\nnewline", "-dash", ".dot", "'quote\"", "raw\udcff"]
SAFE = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_ALLOW_PROTOCOL": "file"}
WHO = ("-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always")


def git(place: Path, *words: str, **variables: str) -> str:
    ran = subprocess.run(
        ["git", *WHO, *words],
        cwd=place,
        env={**environment_without("GIT_"), **SAFE, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.strip()


def make(place: Path, *files: str, init: tuple[str, ...] = ()) -> Path:
    """A repository with one commit of some files."""
    place.mkdir()
    git(place, "init", "--quiet", *init)
    for file in files or ("train.py",):
        path = place / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("one\n")
    commit(place)
    return place


def commit(place: Path) -> None:
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "--allow-empty", "-m", "x")


def head(place: Path) -> str:
    return git(place, "rev-parse", "HEAD")


def value(place: Path) -> str:
    return state_of_repository(str(place))[0]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make(tmp_path / "repository", "train.py", "src/net.py")


def test_a_clean_tree_is_its_commit_seen_from_anywhere_in_it(repository: Path) -> None:
    clean = f"git:{head(repository)}"
    for place in (repository, repository / "src", repository / "src" / "net.py"):
        assert state_of_repository(str(place)) == (clean, head(repository))


def test_untracked_and_ignored_files_and_times_do_not_count(repository: Path) -> None:
    before = value(repository)
    (repository / "notes.txt").write_text("x")
    (repository / "__pycache__").mkdir()
    (repository / "__pycache__" / "a.pyc").write_text("x")
    (repository / ".git" / "info" / "exclude").write_text("*.log\n")
    (repository / "a.log").touch()
    os.utime(repository / "train.py", (1, 1))
    assert value(repository) == before


CHANGES: dict[str, Callable[[Path], object]] = {
    "bytes": lambda place: (place / "train.py").write_text("two\n"),
    "a file gone": lambda place: (place / "src" / "net.py").unlink(),
    "a folder gone": lambda place: [(place / "src" / "net.py").unlink(), (place / "src").rmdir()],
    "executable": lambda place: (place / "train.py").chmod(0o755),
    "a link": lambda place: [(place / "train.py").unlink(), (place / "train.py").symlink_to("src/net.py")],
    "a folder for a file": lambda place: [(place / "train.py").unlink(), (place / "train.py").mkdir()],
    "a link for a folder": lambda place: [(place / "src").rename(place / "s"), (place / "src").symlink_to("s")],
    "one more": lambda place: [(place / "more.py").touch(), git(place, "add", "more.py")],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_of_a_tracked_file_counts_and_whether_it_is_staged_does_not(
    repository: Path, change: Callable[[Path], object]
) -> None:
    clean = value(repository)
    change(repository)
    changed = value(repository)
    assert changed.startswith(f"{clean}+")
    git(repository, "add", "--all", "train.py", "src")
    if (repository / "s").exists():
        git(repository, "reset", "--quiet")
    assert value(repository) == changed
    # and taken back it is as if it had not been
    git(repository, "reset", "--quiet", "--hard")
    assert value(repository) == clean


def test_two_changes_are_two_values_and_the_same_change_is_the_same(repository: Path) -> None:
    values = set()
    for text in ("two\n", "three\n", "two\n"):
        (repository / "train.py").write_text(text)
        values.add(value(repository))
    assert len(values) == 2


def test_a_change_of_the_same_size_and_time_is_seen(repository: Path) -> None:
    # given a file whose index entry would be taken for clean by its size and time
    path = repository / "train.py"
    before, status = value(repository), path.stat()
    git(repository, "update-index", "--assume-unchanged", "train.py")
    path.write_text("two\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert value(repository) != before


@pytest.mark.parametrize("name", NAMES)
def test_files_and_repositories_of_any_name(tmp_path: Path, name: str) -> None:
    place = make(tmp_path / name, name)
    clean = value(place)
    assert clean == f"git:{head(place)}"
    (place / name).write_text("two\n")
    assert value(place / name) not in ("", clean)


def test_links_are_compared_as_links(tmp_path: Path) -> None:
    place = make(tmp_path / "links")
    (place / "l").symlink_to("train.py")
    commit(place)
    assert value(place) == f"git:{head(place)}"
    (place / "l").unlink()
    (place / "l").symlink_to("elsewhere")
    assert value(place) != f"git:{head(place)}"


def test_shallow_clones_linked_trees_detached_heads_and_packed_references(repository: Path, tmp_path: Path) -> None:
    commit(repository)
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{repository}", "shallow")
    git(repository, "worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
    git(repository, "pack-refs", "--all")
    for place in (repository, tmp_path / "shallow", tmp_path / "linked"):
        assert value(place) == f"git:{head(repository)}"


def test_a_repository_of_the_newer_object_format(tmp_path: Path) -> None:
    place = make(tmp_path / "new", init=("--object-format=sha256",))
    assert value(place) == f"git:{head(place)}" and len(head(place)) == 64


def test_a_sparse_checkout_and_a_conflict_have_a_value(repository: Path) -> None:
    # given a merge that stopped in the middle
    git(repository, "checkout", "--quiet", "-b", "side")
    (repository / "train.py").write_text("side\n")
    commit(repository)
    git(repository, "checkout", "--quiet", "-")
    (repository / "train.py").write_text("main\n")
    commit(repository)
    with pytest.raises(subprocess.CalledProcessError):
        git(repository, "merge", "--quiet", "side")
    conflicted = value(repository)
    assert conflicted.startswith(f"git:{head(repository)}+")
    git(repository, "merge", "--abort")
    # and a tree that leaves a folder out
    git(repository, "sparse-checkout", "set", "--no-cone", "/train.py")
    assert not (repository / "src").exists()
    assert value(repository).startswith(f"git:{head(repository)}+")


def test_a_submodule_counts_by_its_own_state(repository: Path, tmp_path: Path) -> None:
    # given a repository with another one in it
    outer = make(tmp_path / "outer")
    git(outer, "submodule", "--quiet", "add", str(repository), "lib")
    commit(outer)
    clean = value(outer)
    assert clean == f"git:{head(outer)}"
    # when a file of the inner one changes, its commit moves, or it is not checked out
    (outer / "lib" / "train.py").write_text("two\n")
    changed = value(outer)
    git(outer / "lib", "commit", "--quiet", "--all", "-m", "y")
    moved = value(outer)
    git(outer, "submodule", "--quiet", "deinit", "--force", "lib")
    away = value(outer)
    # then each is a value of its own
    assert len({clean, changed, moved, away}) == 4


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ("nowhere", "is not there"),
        ("plain", "not a git repository"),
        ("unborn", "there is no commit at the HEAD of"),
        ("bare", "must be run in a work tree"),
        ("damaged", "there is no commit at the HEAD of .*is empty"),
    ],
)
def test_where_there_is_no_answer_that_is_named(tmp_path: Path, shape: str, said: str) -> None:
    place = tmp_path / shape
    if shape == "plain":
        place.mkdir()
    elif shape == "damaged":
        make(place)
        for path in (place / ".git" / "objects").rglob("*"):
            if path.is_file():
                path.chmod(0o600)
                path.write_bytes(b"")
    elif shape != "nowhere":
        place.mkdir()
        git(place, "init", "--quiet", *(["--bare"] if shape == "bare" else []))
    with pytest.raises(IdentityUnknown, match=said):
        value(place)


def test_without_git_that_is_named(repository: Path, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(IdentityUnknown, match=r"git cannot be run on .*: No such file or directory; install it"):
        value(repository)


def test_variables_of_git_that_point_elsewhere_are_not_followed(repository: Path, tmp_path: Path, monkeypatch) -> None:
    other = make(tmp_path / "other")
    before = value(repository)
    trace = tmp_path / "trace"
    for name, text in {
        "GIT_DIR": str(other / ".git"),
        "GIT_WORK_TREE": str(other),
        "GIT_INDEX_FILE": str(tmp_path / "index"),
        "GIT_CEILING_DIRECTORIES": str(repository.parent),
        "GIT_CONFIG_COUNT": "x",
        "GIT_CONFIG_PARAMETERS": "'core.bare=true'",
        "GIT_TRACE": str(trace),
        "GIT_EXTERNAL_DIFF": "false",
        "GIT_OBJECT_DIRECTORY": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, text)
    assert value(repository / "src") == before
    assert not trace.exists()


def test_a_users_configuration_changes_nothing(repository: Path, tmp_path: Path, monkeypatch) -> None:
    (repository / "crlf.txt").write_bytes(b"a\r\nb\n")
    (repository / "train.py").write_text("two\n")
    git(repository, "add", "--all")
    before = value(repository)
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        "[core]\nautocrlf = true\neol = crlf\nquotePath = true\nfileMode = false\nbare = true\n"
        "[diff]\nnoprefix = true\n[status]\nshowUntrackedFiles = all\n[ls]\nx = y\n[core]\nexcludesFile = /\n"
        "[not closed\n"
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    assert value(repository) == before


def everything(place: Path) -> dict[str, tuple[int, int, bytes]]:
    """All files of a repository, its own included, with their times and bytes."""
    return {
        str(path): (path.lstat().st_mtime_ns, path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(place.rglob("*"))
    }


PROGRAMS = (
    *("diff.bad.command", "diff.bad.textconv", "diff.external", "merge.bad.driver"),
    *("core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "core.askPass", "gpg.program"),
    *("alias.ls-files", "pager.ls-tree"),
)
"""What a configuration may name a program for."""


def test_nothing_that_a_repository_configures_is_run_and_nothing_in_it_changes(
    repository: Path, tmp_path: Path
) -> None:
    # given a repository that has a program for whatever git may want to run, and racy entries in its index
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!{sys.executable}\nimport sys\nopen({str(ran)!r}, 'a').write(repr(sys.argv))\nsys.exit(1)\n")
    program.chmod(0o755)
    (repository / ".gitattributes").write_text("* filter=bad diff=bad merge=bad text=auto ident\n*.py filter=process\n")
    git(repository, "add", "--all")
    commit(repository)
    for name in ("clean", "smudge"):
        git(repository, "config", f"filter.bad.{name}", str(program))
    git(repository, "config", "filter.process.process", str(program))
    for name in ("filter.bad.required", "filter.process.required"):
        git(repository, "config", name, "true")
    for name in PROGRAMS:
        git(repository, "config", name, str(program))
    hooks = repository / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for hook in ("post-index-change", "post-checkout", "fsmonitor-watchman", "reference-transaction", "pre-auto-gc"):
        (hooks / hook).symlink_to(program)
    git(repository, "config", "core.hooksPath", str(hooks))
    (repository / "train.py").write_text("two\n")
    before = everything(repository)
    # when its state is asked for
    found = value(repository)
    # then nothing of it was run, and not a byte or time in it is another
    assert found.startswith("git:") and "+" in found
    assert not ran.exists()
    assert everything(repository) == before
    # while git itself would have run it
    with pytest.raises(subprocess.CalledProcessError):
        git(repository, "add", "--all")
    assert ran.exists()


def test_what_a_partial_clone_lacks_is_not_fetched(repository: Path, tmp_path: Path) -> None:
    # given a clone without most of its objects, whose remote is a program
    ran = tmp_path / "ran"
    git(repository, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "--quiet", "--no-checkout", "--filter=tree:0", f"file://{repository}", "partial")
    partial = tmp_path / "partial"
    git(partial, "config", "remote.origin.url", f"ext::touch {ran}")
    git(partial, "config", "protocol.ext.allow", "always")
    # when its tree would have to be fetched, then it cannot be told, and nothing was run
    with pytest.raises(IdentityUnknown, match="fails"):
        value(partial)
    assert not ran.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_repository_of_another_user_has_an_answer(repository: Path) -> None:
    before = value(repository)
    for path in (repository, *repository.rglob("*")):
        os.chown(path, 12345, 12345, follow_symlinks=False)
    with pytest.raises(subprocess.CalledProcessError):
        git(repository, "status")
    assert value(repository) == before


def test_a_tracked_path_behind_a_link_or_with_no_content_is_not_read(repository: Path, tmp_path: Path) -> None:
    (repository / "train.py").unlink()
    os.mkfifo(repository / "train.py")
    with pytest.raises(IdentityUnknown, match=r"tracked file 'train\.py' is no file, folder or link"):
        value(repository)


def test_a_file_that_changes_while_it_is_read_is_read_again_and_then_named(repository: Path, monkeypatch) -> None:
    read, changes = os.readv, iter(range(1))

    def readv(*given):
        count = read(*given)
        if count and (moment := next(changes, None)) is not None:
            os.utime(repository / "train.py", ns=(moment, moment))
        return count

    monkeypatch.setattr(os, "readv", readv)
    # given one that changes once, then it is read again
    (repository / "src" / "net.py").unlink()
    once = value(repository)
    assert once == value(repository)
    # given one that changes each time, then it is named
    changes = iter(range(100))
    with pytest.raises(IdentityUnknown, match=r"tracked file 'train\.py' changes while it is read"):
        value(repository)


def test_a_repository_without_end_is_refused(repository: Path, monkeypatch) -> None:
    monkeypatch.setattr(git_state, "MOST_FILES", 1)
    with pytest.raises(IdentityUnknown, match="has 2 tracked files; at most 1 are read"):
        value(repository)


def test_thousands_of_files_are_read_in_one_go(tmp_path: Path) -> None:
    place = make(tmp_path / "many", *(f"{number % 50}/{number}" for number in range(2000)))
    assert value(place) == f"git:{head(place)}"
    (place / "7" / "57").write_text("two\n")
    assert value(place) != f"git:{head(place)}"
