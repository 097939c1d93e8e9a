"""What only a folder as a store can do wrong."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.support.errors import ConfigurationError, DataError, OmniError, UsageError
from tasks.support.store import ABSENT, ConditionFailedError, Headers, ObjectStore, open_store
from tasks.support.store_file import FileStore
from tests.faults import memory_folder

PAGE = Headers("text/html; charset=utf-8", "no-cache")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "store"


@pytest.fixture
def store(root: Path) -> FileStore:
    return FileStore(root)


def all_calls(store: ObjectStore, key: str = "k") -> list[str]:
    """Return how each call ends: its error's exit code and class, or ``ok``."""

    def outcome(call: object) -> str:
        try:
            call()  # type: ignore[operator]
        except OmniError as error:
            lines = error.message.count("\n") + 1
            return f"{error.exit_code} {type(error).__name__}" + (f" on {lines} lines" if lines > 1 else "")
        return "ok"

    return [
        outcome(call)
        for call in (
            lambda: store.head(key),
            lambda: store.get(key),
            lambda: [*store.stream(key)],
            lambda: [*store.list()],
            lambda: store.put(key, b"", PAGE, expected=ABSENT),
            lambda: store.put_file(key, Path(__file__), PAGE, expected=None),
            lambda: store.delete(key),
        )
    ]


def test_reading_makes_no_folder(store: FileStore, root: Path) -> None:
    assert all_calls(store)[:4] == ["ok", "ok", "66 MissingInputError", "ok"] or root.exists()
    shutil.rmtree(root)
    assert (store.head("k"), store.get("k"), [*store.list()]) == (None, None, [])
    store.delete("k")
    assert not root.exists()


@pytest.mark.parametrize("below", ["", "/x"])
def test_a_file_where_the_store_should_be_is_no_empty_store(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_bytes(b"precious")
    outcomes = all_calls(FileStore(Path(f"{tmp_path}/file{below}")))
    assert set(outcomes) == {"78 ConfigurationError"}
    assert (tmp_path / "file").read_bytes() == b"precious"


@pytest.mark.parametrize("mask", [0o002, 0o022, 0o077])
def test_modes_are_what_the_umask_leaves(store: FileStore, root: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        store.put("d/k", b"", PAGE, expected=ABSENT)
        store.put_file("d/f", Path(__file__), PAGE, expected=ABSENT)
    finally:
        os.umask(before)
    for path in (root, root / "d", root / ".omni-store"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o777 & ~mask
    for path in (root / "d" / "k", root / "d" / "f"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


def test_a_folder_that_cannot_be_read_is_no_shorter_listing(store: FileStore, root: Path) -> None:
    """The unreadable folder is a name that loops: no right is needed to meet it, so root meets it too."""
    store.put("d/k", b"", PAGE, expected=ABSENT)
    (root / "d" / "loop").symlink_to("loop")
    with pytest.raises(OmniError, match="d/loop"):
        [*store.list()]


@pytest.mark.parametrize(
    "what", ["pipe", "dangling link", "link to a folder", "name that is no key", "name that is no text"]
)
def test_what_is_no_object_is_told_by_a_listing(store: FileStore, root: Path, what: str) -> None:
    store.put("d/k", b"", PAGE, expected=ABSENT)
    match what:
        case "pipe":
            os.mkfifo(root / "d" / "odd")
        case "dangling link":
            (root / "d" / "odd").symlink_to("nowhere")
        case "link to a folder":
            (root / "d" / "odd").symlink_to("/")
        case "name that is no key":
            (root / "d" / "odd\\").touch()
        case _:
            Path(os.fsdecode(os.fsencode(root / "d") + b"/odd\xff")).touch()
    with pytest.raises(DataError, match="odd"):
        [*store.list()]
    if "link" not in what:
        assert (store.head("d/odd"), store.get("d/odd")) == (None, None)


@pytest.mark.parametrize("target", ["a folder outside", "a file outside", "a folder inside", "nothing", "itself"])
@pytest.mark.parametrize("link", ["v", "v/cu130", "v/cu130/index.html", ".omni-store", ".omni-store/new"])
def test_no_call_follows_a_link_below_the_root(root: Path, tmp_path: Path, target: str, link: str) -> None:
    outside = tmp_path / "outside"
    (outside / "cu130").mkdir(parents=True)
    for file in (outside / "index.html", outside / "cu130" / "index.html"):
        file.write_bytes(b"not the store's")
    before = {path: path.stat().st_mtime_ns for path in [outside, *outside.rglob("*")]}
    FileStore(root).put("other/index.html", b"the store's", PAGE, expected=ABSENT)
    shutil.rmtree(root / ".omni-store")
    (root / link).parent.mkdir(parents=True, exist_ok=True)
    targets = {"a folder outside": outside, "a file outside": outside / "index.html", "a folder inside": root / "other"}
    (root / link).symlink_to(targets.get(target, "nowhere" if target == "nothing" else Path(link).name))
    store, key = FileStore(root), "v/cu130/index.html"
    ours = link.startswith(".omni-store")
    outcomes = all_calls(store, key)
    del outcomes[3]
    assert outcomes[3:5] == ["65 DataError"] * 2
    if not ours:
        assert set(outcomes) == {"65 DataError"}
        with pytest.raises(DataError, match=f"{root}/{link} .*{key}"):
            store.get(key)
        for prefix in ("", "v", link, f"{link}/", "v/cu130/index"):
            if prefix != "v/cu130/index.html/":
                with pytest.raises(DataError, match=f"{root}/{link} "):
                    [*store.list(prefix)]
    assert {path: path.stat().st_mtime_ns for path in [outside, *outside.rglob("*")]} == before
    assert (root / link).is_symlink()
    assert (root / "other/index.html").read_bytes() == b"the store's"


def test_the_root_itself_may_be_a_link_or_lie_behind_one(tmp_path: Path) -> None:
    (tmp_path / "disk" / "store").mkdir(parents=True)
    (tmp_path / "link").symlink_to("disk")
    (tmp_path / "root").symlink_to("link/store")
    for number, root in enumerate((tmp_path / "link" / "store", tmp_path / "root")):
        assert set(all_calls(FileStore(root), f"d/{number}")) <= {"ok", "66 MissingInputError"}
        FileStore(root).put("k", b"", PAGE, expected=None)
        assert [one.key for one in FileStore(tmp_path / "disk" / "store").list()] == ["k"]


def test_the_own_folder_is_nobodys(store: FileStore) -> None:
    for key in (".omni-store", ".omni-store/locks/00", "a/.omni-store/x"):
        with pytest.raises(UsageError, match="own folder"):
            store.put(key, b"", PAGE, expected=None)
    store.put(".omni-store-too", b"", PAGE, expected=None)
    assert [one.key for one in store.list()] == [".omni-store-too"]


def test_a_name_that_is_too_long_is_told_by_every_call(store: FileStore) -> None:
    for key in ("n" * 256, "é" * 128 + "/k", "d/" + "n" * 300):
        assert set(all_calls(store, key)) == {"65 DataError", "ok"}
        with pytest.raises(DataError, match="may have 255 bytes"):
            store.put(key, b"", PAGE, expected=None)


def test_a_tag_changes_with_every_write(store: FileStore, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tags = [store.put("k", b"same", PAGE, expected=None) for _ in range(100)]
    # A clock that stands still, and one that goes back.
    for now in (time.time_ns(), 1):
        monkeypatch.setattr(time, "time_ns", lambda now=now: now)
        tags += [store.put("k", b"same", PAGE, expected=None) for _ in range(50)]
    # An object from the future.
    os.utime(root / "k", (2**32, 2**32))
    tags += [store.put("k", b"same", PAGE, expected=None) for _ in range(2)]
    assert (root / "k").stat().st_mtime_ns > 2**32 * 10**9
    assert len(set(tags)) == len(tags)
    assert [one.etag for one in store.list()] == tags[-1:]


@pytest.mark.parametrize("seconds", [253_402_300_800, 2**53, -62_135_596_801, -(2**53)])
def test_a_time_that_no_calendar_has_is_told_with_its_file(seconds: int) -> None:
    # ext4 has no such times, a folder in memory has.
    with memory_folder() as root:
        _a_time_that_no_calendar_has(FileStore(root), root, seconds)


def _a_time_that_no_calendar_has(store: FileStore, root: Path, seconds: int) -> None:
    store.put("d/k", b"data", PAGE, expected=ABSENT)
    path = root / "d" / "k"
    with contextlib.suppress(OverflowError, OSError):
        os.utime(path, (seconds, seconds))
    if path.stat().st_mtime != seconds:
        pytest.skip("this file system has no such time")
    calls: list[Callable[[], object]] = [
        lambda: store.head("d/k"), lambda: store.get("d/k"), lambda: [*store.list()], lambda: [*store.list("d/")]
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(DataError, match=re.escape(f"{path} has a modification time")) as caught:
            call()
        assert caught.value.hint == f"touch {path}"
    os.utime(path)
    assert [one.key for one in store.list()] == ["d/k"]


def test_nothing_is_kept_of_what_failed(store: FileStore, root: Path, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(bytes(40 << 20))

    def refuse(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.put_file("d/k", big, PAGE, expected=ABSENT, progress=refuse)

    def spoil(_: int) -> None:
        with big.open("ab") as opened:
            opened.write(b"!")

    with pytest.raises(DataError, match=f"changed while it was copied: {big}"):
        store.put_file("d/k", big, PAGE, expected=ABSENT, progress=spoil)
    assert [*(root / ".omni-store" / "new").iterdir()] == []
    assert [*store.list()] == []


def test_what_a_killed_writer_left_is_removed_later_but_not_what_is_being_written(store: FileStore, root: Path) -> None:
    store.put("k", b"", PAGE, expected=ABSENT)
    left = root / ".omni-store" / "new" / "left"
    fresh = root / ".omni-store" / "new" / "fresh"
    left.write_bytes(b"half")
    fresh.write_bytes(b"half")
    os.utime(left, (0, 0))
    big = root.parent / "big"
    big.write_bytes(bytes(40 << 20))

    def age_and_write(_: int) -> None:
        for path in (root / ".omni-store" / "new").iterdir():
            if path != fresh:
                os.utime(path, (0, 0))
        FileStore(root).put("other", b"", PAGE, expected=None)

    store.put_file("big", big, PAGE, expected=ABSENT, progress=age_and_write)
    assert [*(root / ".omni-store" / "new").iterdir()] == [fresh]


def test_a_lock_does_not_survive_its_holder(store: FileStore, root: Path) -> None:
    store.put("k", b"", PAGE, expected=ABSENT)
    code = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tasks.support.store_file import FileStore
with FileStore(Path(sys.argv[2]))._locked("k"):
    print("held", flush=True)
    time.sleep(600)
"""
    holder = subprocess.Popen([sys.executable, "-c", code, str(ROOT), str(root)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    written = threading.Thread(target=lambda: store.put("k", b"new", PAGE, expected=None))
    written.start()
    written.join(0.3)
    assert written.is_alive(), "the lock keeps other processes out"
    holder.kill()
    holder.communicate()
    written.join(30)
    assert not written.is_alive()


def test_a_condition_is_checked_after_the_lock_is_had(store: FileStore, root: Path, tmp_path: Path) -> None:
    old = store.put("k", b"old", PAGE, expected=ABSENT)
    (tmp_path / "other").write_bytes(b"other")
    outcomes: list[object] = []

    def write() -> None:
        try:
            outcomes.append(store.put("k", b"mine", PAGE, expected=old))
        except ConditionFailedError as error:
            outcomes.append(error)

    written = threading.Thread(target=write)
    with store._locked("k"):
        written.start()
        written.join(0.3)
        (tmp_path / "other").replace(root / "k")
    written.join()
    assert [type(outcome) for outcome in outcomes] == [ConditionFailedError]
    assert (root / "k").read_bytes() == b"other"


def test_empty_folders_are_pruned_up_to_the_root(store: FileStore, root: Path) -> None:
    store.put("a/b/c/d", b"", PAGE, expected=ABSENT)
    store.put("a/x", b"", PAGE, expected=ABSENT)
    store.delete("a/b/c/d")
    assert sorted(path.name for path in (root / "a").iterdir()) == ["x"]
    store.delete("a/x")
    assert [path.name for path in root.iterdir()] == [".omni-store"]


def test_an_empty_folder_is_in_nobodys_way(store: FileStore, root: Path) -> None:
    (root / "a" / "b").mkdir(parents=True)
    store.put("a/b", b"", PAGE, expected=ABSENT)
    store.delete("a/b")
    assert [*store.list()] == []


AS_NOBODY = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.unit.test_store_file import all_calls
from tasks.support.store_file import FileStore
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
print(*all_calls(FileStore(Path(sys.argv[2]))), sep="\\n")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "reads", "writes"),
    [(0o555, "ok", "77 CredentialsError"), (0o000, "77 CredentialsError", "77 CredentialsError")],
)
def test_rights_that_are_missing(mode: int, reads: str, writes: str) -> None:
    # pytest's own folders are closed to other users.
    folder = Path(tempfile.mkdtemp())
    try:
        store = FileStore(folder / "store")
        store.put("k", b"old", PAGE, expected=ABSENT)
        folder.chmod(0o755)
        (folder / "store").chmod(mode)
        argv = [sys.executable, "-c", AS_NOBODY, str(ROOT), str(folder / "store")]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.stdout.splitlines() == [reads] * 4 + [writes] * 3, done.stderr
    finally:
        (folder / "store").chmod(0o755)
        shutil.rmtree(folder)


ON_A_FULL_DISK = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tasks.support.errors import OmniError
from tasks.support.store import Headers
from tasks.support.store_file import FileStore
store, big = FileStore(Path(sys.argv[2])), Path(sys.argv[3])
h = Headers("a/b", "c")
old = store.put("k", b"old", h, expected=None)
for put, content in ((store.put, big.read_bytes()), (store.put_file, big)):
    try:
        put("k", content, h, expected=None)
    except OmniError as error:
        print(error.exit_code, error.message)
        print(error.hint)
    print(store.get("k").data, [one.key for one in store.list()], len([*(store.root / ".omni-store/new").iterdir()]))
print(store.put("small", b"there is room again", h, expected=None) != old)
"""


def test_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "big").write_bytes(bytes(3 << 20))
    script = 'mount -t tmpfs -o size=1m none "$1" && shift && exec "$@"'
    argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", str(tmp_path / "small")]
    argv += [sys.executable, "-c", ON_A_FULL_DISK, str(ROOT), str(tmp_path / "small" / "store"), str(tmp_path / "big")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0 and ("unshare" in done.stderr or "mount" in done.stderr):
        pytest.skip(f"no small disk can be mounted here: {done.stderr.strip()}")
    refused = f"69 cannot write {tmp_path}/small/store/k: no space left on device"
    hint = "this object is as it was, earlier ones may be written; make room, then run this again"
    assert done.stdout.splitlines() == [refused, hint, "b'old' ['k'] 0"] * 2 + ["True"], done.stderr


@pytest.mark.parametrize(
    ("url", "opened"),
    [
        ("file:///srv/a%20b/c", "file:///srv/a%20b/c"),
        ("file://localhost/srv/x/", "file:///srv/x"),
        ("FILE:///srv/x", "file:///srv/x"),
        ("/srv/x y", "file:///srv/x%20y"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("S3://bucket/a%20b", "s3://bucket/a%20b"),
    ],
)
def test_store_urls(url: str, opened: str) -> None:
    assert open_store(url).url == opened


def test_steps_up_are_taken_as_the_system_takes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "c" / "d").mkdir(parents=True)
    (tmp_path / "a" / "link").symlink_to(tmp_path / "c" / "d")
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.chdir(tmp_path / "a" / "b")
    for word, meant in {
        "..": "a", "../../st": "st", "../link/../st": "c/st", "../link": "c/d", "./../b/../st": "a/st",
        f"{tmp_path}/a/../st": "st", f"file://{tmp_path}/a/link/../st": "c/st", "../none/../st": "a/st",
    }.items():  # fmt: skip
        opened = open_store(word)
        assert ".." not in opened.url, word
        assert isinstance(opened, FileStore)
        assert opened.root.resolve() == tmp_path / meant, word
        assert open_store(str(tmp_path / "a" / "link")).url.endswith("/a/link"), "a link stays one"


def test_a_bare_relative_path_starts_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_store("wheels/store").url == (tmp_path / "wheels" / "store").as_uri()
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("", "no name"),
        (" ", "no name"),
        ("a\0b", "no name"),
        ("file:relative", "not a store URL"),
        ("file:/srv", "not a store URL"),
        ("file://relative/path", "not an absolute file URL"),
        ("file://", "not an absolute file URL"),
        ("file:///", "not an absolute file URL"),
        ("s3:bucket/x", "not a store URL"),
        ("s3://", "not a bucket's name"),
        ("s3:///x", "not a bucket's name"),
        ("s3://ab", "not a bucket's name"),
        ("s3://UPPER/x", "not a bucket's name"),
        ("s3://bucket/a//b", "not a store key"),
        ("s3://bucket/../x", "not a store key"),
        ("https://bucket.example/x", "unknown kind of store 'https:'"),
        ("gs://bucket", "unknown kind of store 'gs:'"),
        ("s3s://bucket", "unknown kind of store 's3s:'"),
    ],
)
def test_urls_that_name_no_store(url: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert told in caught.value.message


@pytest.mark.parametrize(
    "url",
    [
        "s3://me:hunter2@bucket/x",
        "s3://hunter2@bucket",
        "https://me:hunter2@example/x",
        "s3://bucket/x?X-Amz-Signature=hunter2",
        "https://bucket.example/x?token=hunter2",
        "s3://bucket/x#hunter2",
    ],
)
def test_a_url_that_could_hold_a_credential_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert "hunter2" not in f"{caught.value.message} {caught.value.hint}"


def test_a_misspelt_kind_of_store_is_guessed() -> None:
    with pytest.raises(UsageError) as caught:
        open_store("fil:///srv/x")
    assert caught.value.hint == "did you mean file?"


def test_opening_an_s3_store_loads_no_client() -> None:
    code = "import sys; from tasks.support import store; store.open_store('s3://bkt'); print('boto3' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True) == "False\n"


def test_a_root_that_is_no_folder_has_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=f"cannot write {tmp_path}/file/k: not a directory"):
        FileStore(tmp_path / "file").put("k", b"", PAGE, expected=ABSENT)
