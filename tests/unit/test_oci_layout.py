"""A folder as a repository: what it keeps, what it refuses, what others read in it, and what kills leave."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tasks.registry.documents import OCI_INDEX, OCI_MANIFEST, Descriptor, Manifest
from tasks.registry.interface import Repository
from tasks.registry.oci_layout import REF_NAME, LayoutRepository
from tasks.support.errors import ConfigurationError, DataError, MissingInputError, ServiceRefusedError, UsageError
from tests.factory_image import Image, attested, content, image, index, noise, stage, store
from tests.faults import in_child, memory_folder
from tests.services import die_with_parent
from tests.skopeo import skopeo

ROOT = Path(__file__).parents[2]
NO_JSON: dict[str, Callable[[str], bytes]] = {
    "utf-16": lambda text: text.encode("utf-16"),
    "utf-16 without a mark": lambda text: text.encode("utf-16-le"),
    "utf-32": lambda text: text.encode("utf-32"),
    "byte order mark": lambda text: text.encode("utf-8-sig"),
    "latin-1": lambda text: text.replace("{", '{"x": "\xe9", ', 1).encode("latin-1"),
    "NaN": lambda text: text.replace("{", '{"x": NaN, ', 1).encode(),
    "Infinity": lambda text: text.replace("{", '{"x": Infinity, ', 1).encode(),
    "-Infinity": lambda text: text.replace("{", '{"x": [-Infinity], ', 1).encode(),
}
ABSENT = f"sha256:{'0' * 64}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "layout"


@pytest.fixture
def layout(folder: Path) -> LayoutRepository:
    return LayoutRepository(folder)


def blob_file(folder: Path, digest: str) -> Path:
    return folder / "blobs" / "sha256" / digest.removeprefix("sha256:")


def test_it_is_a_repository(layout: LayoutRepository) -> None:
    repository: Repository = layout
    assert str(repository.name) == layout.folder.as_uri()


def test_a_folder_that_is_not_there_is_empty_and_reading_makes_none(layout: LayoutRepository) -> None:
    assert layout.head("latest") is None
    assert layout.manifest(ABSENT) is None
    assert not layout.has_blob(ABSENT)
    assert layout.tags() == []
    assert not layout.delete_manifest(ABSENT)
    assert not layout.delete_tag("latest")
    with pytest.raises(MissingInputError):
        next(layout.read_blob(ABSENT))
    assert not layout.mount(image().contents[0].blob, LayoutRepository(layout.folder / "other"))
    assert not layout.folder.parent.joinpath("other").exists()


@pytest.mark.parametrize(
    "made",
    [image(), image(docker=True), attested(image()), index(image(), image("arm64"), attest=True)],
    ids=["OCI", "Docker", "BuildKit", "two platforms"],
)
def test_what_is_stored_comes_back_in_the_same_bytes(made: Image, layout: LayoutRepository) -> None:
    digest = store(made, layout, "tag")
    again = LayoutRepository(layout.folder)
    assert again.manifest("tag") == again.manifest(digest) == made.top
    assert again.head("tag") == again.head(digest) == made.top.descriptor()
    for manifest in made.below:
        assert again.manifest(manifest.digest) == manifest
    for part in made.contents:
        data = b"".join(part.read())
        assert b"".join(again.read_blob(part.blob.digest)) == data
        assert b"".join(again.read_blob(part.blob.digest, start=7)) == data[7:]
        assert again.head(part.blob.digest) is None, "a blob is no manifest"
    assert again.tags() == ["tag"]


def test_a_manifest_without_its_own_media_type_is_recognised(layout: LayoutRepository) -> None:
    made = image()
    store(made, layout)
    for media_type, key in ((OCI_MANIFEST, "mediaType"), (OCI_INDEX, "mediaType")):
        source = made.top if media_type == OCI_MANIFEST else index(made).top
        document = json.loads(source.data)
        del document[key]
        manifest = Manifest(media_type, json.dumps(document).encode())
        layout.put_manifest(manifest)
        assert layout.manifest(manifest.digest) == manifest


def test_a_tag_moves_and_the_others_stay(layout: LayoutRepository) -> None:
    first, second = image(commit="a" * 40), image(commit="b" * 40)
    store(first, layout, "v1")
    store(first, layout, "latest")
    store(second, layout, "latest")
    assert (layout.manifest("v1"), layout.manifest("latest")) == (first.top, second.top)
    assert layout.delete_tag("latest")
    assert not layout.delete_tag("latest")
    assert layout.tags() == ["v1"]
    assert layout.manifest(second.top.digest) == second.top


def test_deleting_a_manifest_takes_its_tags_and_only_them(layout: LayoutRepository) -> None:
    first, second = attested(image(commit="a" * 40)), attested(image(commit="b" * 40))
    for tag in ("one", "two"):
        store(first, layout, tag)
    store(second, layout, "three")
    assert layout.delete_manifest(first.top.digest)
    assert not layout.delete_manifest(first.top.digest)
    assert layout.tags() == ["three"]
    assert layout.manifest(first.top.digest) is None
    assert layout.manifest(first.below[0].digest) == first.below[0]
    assert not layout.delete_manifest(second.contents[0].blob.digest), "a layer is no manifest"
    assert layout.has_blob(second.contents[0].blob.digest)


@pytest.mark.parametrize("missing", ["layer", "config", "child"])
def test_a_manifest_of_which_something_is_missing_is_refused(missing: str, layout: LayoutRepository) -> None:
    made = attested(image())
    parts = {"layer": made.contents[1].blob, "config": made.contents[2].blob}
    for part in made.contents:
        if part.blob != parts.get(missing):
            layout.put_blob(part.blob, part.read())
    tried = made.top if missing == "child" else made.below[0]
    with pytest.raises(ServiceRefusedError, match="is missing"):
        layout.put_manifest(tried, "latest")
    assert layout.tags() == []
    assert layout.manifest(tried.digest) is None


@pytest.mark.parametrize("kind", [OCI_INDEX, OCI_MANIFEST])
@pytest.mark.parametrize("spoil", NO_JSON.values(), ids=NO_JSON)
def test_a_manifest_that_is_not_json_is_refused(
    spoil: Callable[[str], bytes], kind: str, layout: LayoutRepository
) -> None:
    config = image().contents[-1].blob
    parts = {"manifests": [], "layers": [], "config": {"mediaType": "x", "digest": config.digest, "size": config.size}}
    spoiled = Manifest(kind, spoil(json.dumps({"schemaVersion": 2, "mediaType": kind, **parts})))
    with pytest.raises(DataError, match="not JSON"):
        layout.put_manifest(spoiled, "latest")
    assert layout.tags() == []


@pytest.mark.parametrize("wrong", ["flipped", "short", "long", "size", "empty"])
def test_bytes_without_their_digest_are_not_stored(wrong: str, layout: LayoutRepository) -> None:
    data = noise(1, 100_000)
    blob = content(data, OCI_MANIFEST).blob
    arriving = {
        "flipped": data[:500] + bytes([data[500] ^ 1]) + data[501:],
        "short": data[:-1],
        "long": data + b"x",
        "size": data,
        "empty": b"",
    }[wrong]
    claimed = Descriptor(blob.media_type, blob.digest, blob.size + (wrong == "size"))
    counts: list[int] = []
    with pytest.raises(DataError, match=blob.digest):
        layout.put_blob(claimed, iter((arriving[:1000], arriving[1000:])), counts.append)
    assert sum(counts) == 0, "what is to be sent again is taken back"
    assert not layout.has_blob(blob.digest)
    assert [*layout.folder.glob(".omni-layout/new/*")] == []


def test_a_blob_whose_source_fails_is_not_stored(layout: LayoutRepository) -> None:
    class SourceError(Exception):
        pass

    def chunks() -> Iterator[bytes]:
        yield b"some"
        raise SourceError

    with pytest.raises(SourceError):
        layout.put_blob(image().contents[0].blob, chunks())
    assert not layout.has_blob(image().contents[0].blob.digest)


def test_progress_counts_the_bytes(layout: LayoutRepository) -> None:
    part = content(noise(1, 5000), OCI_MANIFEST)
    counts: list[int] = []
    layout.put_blob(part.blob, iter((noise(1, 5000)[:2000], noise(1, 5000)[2000:])), counts.append)
    assert counts == [2000, 3000]


def test_a_blob_of_another_layout_is_linked_and_survives_its_source(layout: LayoutRepository, tmp_path: Path) -> None:
    source = LayoutRepository(tmp_path / "source")
    part = image().contents[0]
    store(image(), source)
    assert layout.mount(part.blob, source)
    assert layout.mount(part.blob, source), "once more is no failure"
    assert blob_file(layout.folder, part.blob.digest).stat().st_nlink == 2
    shutil.rmtree(source.folder)
    assert b"".join(layout.read_blob(part.blob.digest)) == b"".join(part.read())


def test_a_blob_on_another_file_system_is_copied(layout: LayoutRepository, tmp_path: Path) -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second file system")
    folder = shared / f"layout-{os.getpid()}"
    try:
        source = LayoutRepository(folder)
        store(image(), source)
        assert layout.mount(image().contents[0].blob, source)
        assert b"".join(layout.read_blob(image().contents[0].blob.digest)) == b"".join(image().contents[0].read())
    finally:
        shutil.rmtree(folder)


def test_a_damaged_source_is_not_mounted(layout: LayoutRepository, tmp_path: Path) -> None:
    source = LayoutRepository(tmp_path / "source")
    blob = image().contents[0].blob
    store(image(), source)
    blob_file(source.folder, blob.digest).write_bytes(b"short")
    with pytest.raises(DataError, match=str(blob_file(source.folder, blob.digest))):
        layout.mount(blob, source)
    assert not layout.has_blob(blob.digest)


def damage_index(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], str]:
    def damage(folder: Path) -> str:
        path = folder / "index.json"
        document = json.loads(path.read_text())
        change(document)
        path.write_text(json.dumps(document))
        return "index.json"

    return damage


def write(name: str, data: bytes) -> Callable[[Path], str]:
    def damage(folder: Path) -> str:
        (folder / name).write_bytes(data)
        return name

    return damage


def remove(name: str) -> Callable[[Path], str]:
    def damage(folder: Path) -> str:
        (folder / name).unlink()
        return name

    return damage


def other_kind(name: str, make: Callable[[Path], None]) -> Callable[[Path], str]:
    def damage(folder: Path) -> str:
        (folder / name).unlink()
        make(folder / name)
        return name

    return damage


def top_file(data: bytes | None) -> Callable[[Path], str]:
    def damage(folder: Path) -> str:
        path = blob_file(folder, attested(image()).top.digest)
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)
        return path.name

    return damage


DAMAGES: dict[str, Callable[[Path], str]] = {
    "no json": write("index.json", b"{"),
    "cut off": write("index.json", b""),
    "binary": write("index.json", b"\xff\xfe\0"),
    "nested without end": write("index.json", b"[" * 100_000),
    "a list": write("index.json", b"[]"),
    "no manifests": damage_index(lambda document: document.pop("manifests")),
    "manifests are a word": damage_index(lambda document: document.update(manifests="all")),
    "a descriptor is null": damage_index(lambda document: document["manifests"].append(None)),
    "annotations are a list": damage_index(lambda document: document["manifests"][0].update(annotations=["x"])),
    "a digest is none": damage_index(lambda document: document["manifests"][0].update(digest="sha256:../../x")),
    "a size is a word": damage_index(lambda document: document["manifests"][0].update(size="1")),
    "a tag twice": damage_index(
        lambda document: document["manifests"].append({**document["manifests"][0], "digest": ABSENT})
    ),
    "no marker": remove("oci-layout"),
    "marker is no json": write("oci-layout", b"1.0.0"),
    "marker of another version": write("oci-layout", b'{"imageLayoutVersion": "2.0.0"}'),
    "index is a folder": other_kind("index.json", Path.mkdir),
    "index is a pipe": other_kind("index.json", os.mkfifo),
    "marker is a folder": other_kind("oci-layout", Path.mkdir),
    "marker is a pipe": other_kind("oci-layout", os.mkfifo),
    "index in another encoding": write("index.json", '{"manifests": []}'.encode("utf-16")),
    "index with a byte order mark": write("index.json", '{"manifests": []}'.encode("utf-8-sig")),
    "index with NaN": write("index.json", b'{"manifests": [], "x": NaN}'),
    "a platform is no text": damage_index(
        lambda document: document["manifests"][0].update(platform={"os": "linux", "architecture": []})
    ),
    "manifest is missing": top_file(None),
    "manifest is cut off": top_file(b"{"),
    "manifest is another": top_file(image().top.data),
    "manifest is huge": top_file(bytes(5 << 20)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damage_is_named_and_never_read_as_absence(damage: Callable[[Path], str], layout: LayoutRepository) -> None:
    store(attested(image()), layout, "latest")
    name = damage(layout.folder)
    for look in (layout.head, layout.manifest):
        with pytest.raises(DataError) as caught:
            look("latest")
        assert name in caught.value.message
        assert "\n" not in caught.value.message


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_nothing_damaged_is_written_over(damage: Callable[[Path], str], layout: LayoutRepository) -> None:
    store(attested(image()), layout, "latest")
    name = damage(layout.folder)
    if name not in {"index.json", "oci-layout"} or damage is DAMAGES["a tag twice"]:
        return  # a push or a delete is the repair
    file = layout.folder / name
    before = file.read_bytes() if file.is_file() else None
    changes: list[Callable[[], object]] = [
        lambda: layout.put_manifest(image().top, "other"),
        lambda: layout.delete_tag("latest"),
    ]
    for change in changes:
        with pytest.raises(DataError, match=name):
            change()
    assert (file.read_bytes() if file.is_file() else None) == before


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    layout = LayoutRepository(tmp_path)
    assert layout.tags() == []
    part = image().contents[0]
    changes: list[Callable[[], None]] = [
        lambda: layout.put_blob(part.blob, part.read()),
        lambda: layout.put_manifest(image().top, "latest"),
    ]
    for change in changes:
        with pytest.raises(ConfigurationError, match="not empty"):
            change()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_in_the_folders_place_is_no_empty_repository(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    layout = LayoutRepository(tmp_path / "file")
    for call in (
        layout.tags,
        lambda: layout.head("x"),
        lambda: layout.has_blob(ABSENT),
        lambda: layout.delete_tag("x"),
    ):
        with pytest.raises(ConfigurationError):
            call()


def test_what_others_wrote_into_a_layout_stays(layout: LayoutRepository) -> None:
    store(image(), layout, "latest")
    path = layout.folder / "index.json"
    document = json.loads(path.read_text())
    foreign = [
        {"mediaType": "application/x", "digest": ABSENT, "size": 3, "artifactType": "a", "annotations": {"k": "v"}},
        {"mediaType": "application/x", "digest": ABSENT, "size": 3, "annotations": {REF_NAME: "host/name:tag"}},
    ]
    path.write_text(json.dumps(document | {"manifests": [*foreign, *document["manifests"]], "x-own": 1}))
    (layout.folder / "README").write_text("mine")
    assert layout.tags() == ["latest"]
    store(image("arm64"), layout, "other")
    layout.delete_tag("latest")
    changed = json.loads(path.read_text())
    assert changed["manifests"][:2] == foreign
    assert changed["x-own"] == 1
    assert (layout.folder / "README").read_text() == "mine"


@pytest.mark.parametrize("reference", ["", "../x", "a b", "-x", "sha256:abc", "x" * 129, "a\n"])
def test_what_is_no_reference_is_refused_before_anything_is_read(reference: str, layout: LayoutRepository) -> None:
    for call in (layout.head, layout.manifest, layout.has_blob, layout.delete_manifest, layout.delete_tag):
        if call is layout.delete_tag and reference.startswith("sha256"):
            continue
        with pytest.raises(UsageError):
            call(reference)
    with pytest.raises(UsageError):
        layout.put_manifest(image().top, reference or " ")


def test_no_tag_of_many_writers_is_lost(layout: LayoutRepository) -> None:
    made = [image(commit=f"{number:040x}") for number in range(16)]
    start = threading.Barrier(len(made))

    def write_one(number: int) -> None:
        mine = LayoutRepository(layout.folder)
        start.wait()
        store(made[number], mine, f"t{number}")
        store(made[number], mine, f"gone{number}")
        mine.delete_tag(f"gone{number}")

    threads = [threading.Thread(target=write_one, args=(number,)) for number in range(len(made))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert layout.tags() == sorted(f"t{number}" for number in range(len(made)))
    assert [layout.manifest(f"t{number}") for number in range(len(made))] == [one.top for one in made]


WRITER = """
import sys
from pathlib import Path
from tasks.registry.oci_layout import LayoutRepository
from tests.factory_image import image, store
layout = LayoutRepository(Path(sys.argv[1]))
for number in range(int(sys.argv[3])):
    store(image(commit=f"{sys.argv[2]}-{number}"), layout, f"p{sys.argv[2]}-{number}")
"""


def writer(folder: Path, name: str, count: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), name, str(count)],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": os.defpath},
        preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, and no Python lock is taken
    )


def test_processes_lose_no_tag_of_each_other(layout: LayoutRepository) -> None:
    running = [writer(layout.folder, name, 10) for name in "abc"]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert len(layout.tags()) == 30


@pytest.mark.slow
def test_a_killed_writer_leaves_a_sound_layout(layout: LayoutRepository, repetitions: int) -> None:
    for number in range(3 * repetitions):
        process = writer(layout.folder, str(number), 100_000)
        seen = len(layout.tags())
        while process.poll() is None and len(layout.tags()) < seen + 5:
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        for tag in layout.tags()[-10:]:
            manifest = layout.manifest(tag)
            assert manifest is not None
            assert all(layout.has_blob(blob.digest) for blob in manifest.blobs)
    store(image(), layout, "after")


FILE_EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.link"}


def die_at(number: int) -> None:
    """Let this process kill itself ahead of its file operation of that number (Python's audit events)."""
    left = [number]

    def hook(event: str, _arguments: object) -> None:
        if event in FILE_EVENTS:
            left[0] -= 1
            if left[0] <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def incomplete(layout: LayoutRepository) -> list[str]:
    """Return the tags that lead to something of which a part is missing."""
    found = []
    for tag in layout.tags():
        top = layout.manifest(tag)
        manifests = [top, *(layout.manifest(child.digest) for child in top.children)] if top else [None]
        parts = [blob for manifest in manifests if manifest for blob in manifest.blobs]
        if None in manifests or not all(layout.has_blob(blob.digest) for blob in parts):
            found.append(tag)
    return found


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.sweep])])
def test_a_kill_at_any_file_operation_leaves_a_sound_layout(step: int) -> None:
    old, new, other = (attested(image(commit=letter * 40)) for letter in "abc")

    def change(layout: LayoutRepository) -> None:
        store(new, layout, "latest")
        assert layout.mount(other.contents[1].blob, LayoutRepository(layout.folder.with_name("other")))
        layout.delete_tag("gone")
        layout.delete_manifest(old.top.digest)

    with memory_folder() as folder:
        store(other, LayoutRepository(folder / "other"))
        kills = 0
        for number in count(1, step):
            layout = LayoutRepository(folder / f"layout-{number}")
            if number % 2 == 0:
                for tag in ("latest", "gone", "old"):
                    store(old, layout, tag)

            def killed(layout: LayoutRepository = layout, number: int = number) -> None:
                die_at(number)
                change(layout)

            ended = in_child(killed)
            assert ended in {0, -signal.SIGKILL}
            assert incomplete(layout) == []
            change(layout)
            assert incomplete(layout) == []
            assert layout.tags() == ["latest"]
            assert layout.manifest("latest") == new.top
            if ended == 0:
                break
            kills += 1
            shutil.rmtree(layout.folder)
        assert kills > 10


@pytest.mark.service
def test_skopeo_reads_every_tag_and_writes_what_we_read(layout: LayoutRepository, tmp_path: Path) -> None:
    staged = stage(layout)
    for tag, made in staged.items():
        raw = skopeo("inspect", "--raw", f"oci:{layout.folder}:{tag}")
        assert raw.encode() == made.top.data
        skopeo("copy", "--all", "--preserve-digests", f"oci:{layout.folder}:{tag}", f"oci:{tmp_path / 'theirs'}:{tag}")
    theirs = LayoutRepository(tmp_path / "theirs")
    assert theirs.tags() == sorted(staged)
    for tag, made in staged.items():
        assert theirs.manifest(tag) == made.top
        assert all(theirs.manifest(manifest.digest) == manifest for manifest in made.below)
        assert all(theirs.has_blob(digest) for digest in made.blobs)
