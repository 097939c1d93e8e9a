"""One flat index from staged images: what is in it, in which order, in which bytes, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.registry.assembling import Source, assemble, images_of, normal, read_facts
from tasks.registry.documents import (
    ATTESTATION,
    DOCKER_INDEX,
    OCI_INDEX,
    OCI_MANIFEST,
    REFERENCE_DIGEST,
    REFERENCE_TYPE,
    Manifest,
    Platform,
)
from tasks.support.errors import DataError, MissingInputError
from tests.factory_image import (
    AMD64,
    ARM64,
    COMMIT,
    REVISION,
    UNKNOWN,
    VERSION,
    Image,
    attestation,
    attested,
    descriptor,
    image,
    index,
)

ARM7 = Platform("linux", "arm", "v7")
RISCV = Platform("linux", "riscv64")
EVERY = (AMD64, ARM64, ARM7, RISCV)


def config_of(made: Image) -> bytes:
    return b"".join(made.contents[-1].read())


def source(made: Image, name: str = "staged:tag", platform: Platform | None = None) -> Source:
    return Source(name, made.top, None if made.top.is_index else config_of(made), platform)


def of(platform: Platform, **options: Any) -> Image:
    return image(platform.architecture, os=platform.os, variant=platform.variant, **options)


def changed(made: Image, change: Callable[[dict[str, Any]], object]) -> Source:
    """Return a source whose index was changed after it was made."""
    document = json.loads(made.top.data)
    change(document)
    return Source("staged:tag", Manifest(document["mediaType"], json.dumps(document).encode()))


def test_two_staged_indexes_become_one_with_both_attestations() -> None:
    amd64, arm64 = attested(image("amd64")), attested(image("arm64"))
    made = assemble((source(arm64), source(amd64)), (AMD64, ARM64))
    assert made.media_type == OCI_INDEX
    assert [child.digest for child in made.children] == [part.digest for part in (*amd64.below, *arm64.below)]
    assert [child.document for child in made.children] == [
        child.document for child in (*amd64.top.children, *arm64.top.children)
    ]


def test_attestations_are_left_out_when_they_are_not_wanted() -> None:
    sources = (source(attested(image("amd64"))), source(attested(image("arm64"))))
    made = assemble(sources, (AMD64, ARM64), attestations=False)
    assert [child.digest for child in made.children] == [image("amd64").top.digest, image("arm64").top.digest]


@pytest.mark.parametrize(("docker", "media_type"), [((True, True), DOCKER_INDEX), ((True, False), OCI_INDEX)])
def test_the_index_is_ocis_if_any_child_is(docker: tuple[bool, bool], media_type: str) -> None:
    sources = [source(of(platform, docker=kind)) for platform, kind in zip((AMD64, ARM64), docker, strict=True)]
    made = assemble(sources, (AMD64, ARM64))
    assert (made.media_type, made.document["mediaType"]) == (media_type, media_type)


def test_a_plain_manifest_gets_its_platform_from_its_configuration() -> None:
    made = assemble((source(image("arm64", variant="v8")), source(image("amd64"))), (AMD64, ARM64))
    assert [child.platform for child in made.children] == [AMD64, ARM64]
    with pytest.raises(DataError, match="staged:tag"):
        assemble((Source("staged:tag", image().top),), (AMD64,))


def test_the_form_of_the_bytes_is_fixed() -> None:
    """A change of the form would change the digest of every index that is published again."""
    digest, other = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
    staged = (
        f'{{"manifests":[{{"platform":{{"os":"linux","architecture":"amd64"}},"size":7,"mediaType":"{OCI_MANIFEST}",'
        f'"digest":"{digest}"}},{{"digest":"{other}","annotations":{{"{REFERENCE_TYPE}":"{ATTESTATION}",'
        f'"{REFERENCE_DIGEST}":"{digest}"}},"size":8,"mediaType":"{OCI_MANIFEST}"}}],"schemaVersion":2}}'
    )
    made = assemble((Source("staged", Manifest(OCI_INDEX, staged.encode())),), (AMD64,))
    assert made.data.decode() == (
        f"""{{
  "schemaVersion": 2,
  "mediaType": "{OCI_INDEX}",
  "manifests": [
    {{
      "mediaType": "{OCI_MANIFEST}",
      "digest": "{digest}",
      "size": 7,
      "platform": {{
        "architecture": "amd64",
        "os": "linux"
      }}
    }},
    {{
      "mediaType": "{OCI_MANIFEST}",
      "digest": "{other}",
      "size": 8,
      "annotations": {{
        "{REFERENCE_DIGEST}": "{digest}",
        "{REFERENCE_TYPE}": "{ATTESTATION}"
      }}
    }}
  ]
}}"""
    )


def test_fields_that_we_do_not_know_survive() -> None:
    def extend(document: dict[str, Any]) -> None:
        document["manifests"][0] |= {"artifactType": "a/b", "annotations": {"z": "1", "a": "2"}, "data": "eA=="}
        document["manifests"][0]["platform"] |= {"os.version": "10", "os.features": ["x"]}

    made = assemble((changed(attested(image()), extend),), (AMD64,))
    first = made.children[0].document
    assert (first["artifactType"], first["data"]) == ("a/b", "eA==")
    assert first["platform"] == {"architecture": "amd64", "os": "linux", "os.features": ["x"], "os.version": "10"}
    assert list(first["annotations"]) == ["a", "z"]


@st.composite
def staged(draw: st.DrawFn) -> tuple[list[Source], list[Platform], list[Image]]:
    """Return sources, the order that is wanted, and the images in that order."""
    platforms = draw(st.lists(st.sampled_from(EVERY), min_size=1, unique=True))
    images = [of(platform, docker=draw(st.booleans())) for platform in platforms]
    groups: list[list[Image]] = []
    for made in draw(st.permutations(images)):
        join = draw(st.booleans())
        if groups and join:
            groups[-1].append(made)
        else:
            groups.append([made])
    sources = []
    for group in groups:
        plain, attest = draw(st.tuples(st.booleans(), st.booleans()))
        sources.append(source(group[0] if plain and len(group) == 1 else index(*group, attest=attest)))
    return sources, platforms, images


@given(staged=staged(), data=st.data())
def test_any_staging_gives_one_flat_index(
    staged: tuple[list[Source], list[Platform], list[Image]], data: st.DataObject
) -> None:
    sources, platforms, images = staged
    made = assemble(sources, platforms)
    wanted = [one.top.digest for one in images]
    assert [child.digest for child in made.children if child.attests is None] == wanted
    assert [normal(child.platform) for child in made.children if child.attests is None and child.platform] == platforms
    listed = {child.digest for one in sources for child in one.manifest.children if child.attests}
    assert {child.digest for child in made.children if child.attests} == listed
    for before, child in zip(made.children, made.children[1:], strict=False):
        if child.attests:
            assert child.attests == before.digest
            assert child.annotations == {REFERENCE_DIGEST: before.digest, REFERENCE_TYPE: ATTESTATION}
    assert not any("index" in child.media_type or "list" in child.media_type for child in made.children)
    assert assemble(data.draw(st.permutations(sources)), platforms) == made
    assert assemble([Source("again", made)], platforms) == made


@given(staged=staged(), data=st.data())
def test_any_missing_double_or_foreign_platform_is_refused(
    staged: tuple[list[Source], list[Platform], list[Image]], data: st.DataObject
) -> None:
    sources, platforms, _ = staged
    for absent in set(EVERY) - set(platforms):
        with pytest.raises(MissingInputError, match=str(absent)):
            assemble(sources, [*platforms, absent])
    foreign = data.draw(st.sampled_from(platforms))
    with pytest.raises(DataError, match=str(foreign)):
        assemble(sources, [platform for platform in EVERY if platform != foreign])
    again = of(foreign, commit=data.draw(st.sampled_from([COMMIT, "f" * 40])))
    with pytest.raises(DataError, match=f"two images of {foreign}"):
        assemble([*sources, source(again)], platforms)


def test_nothing_at_all_is_missing_everything() -> None:
    with pytest.raises(MissingInputError, match="linux/amd64, linux/arm64"):
        assemble((), (AMD64, ARM64))


def test_a_source_must_be_of_the_platform_that_its_tag_says() -> None:
    swapped = (source(attested(image("arm64")), "x86", AMD64), source(attested(image("amd64")), "arm", ARM64))
    with pytest.raises(DataError, match="x86 is an image of linux/arm64, not of linux/amd64"):
        assemble(swapped, (AMD64, ARM64))
    assert len(images_of(source(image("arm64", variant="v8"), platform=ARM64))) == 1


def orphan(document: dict[str, Any]) -> None:
    document["manifests"][1]["annotations"][REFERENCE_DIGEST] = f"sha256:{'0' * 64}"


def without_reference(document: dict[str, Any]) -> None:
    del document["manifests"][1]["annotations"][REFERENCE_DIGEST]


def other_reference_type(document: dict[str, Any]) -> None:
    document["manifests"][1]["annotations"][REFERENCE_TYPE] = "something-else"


def unmarked(document: dict[str, Any]) -> None:
    del document["manifests"][1]["annotations"]


def without_platform(document: dict[str, Any]) -> None:
    del document["manifests"][0]["platform"]


def nested(document: dict[str, Any]) -> None:
    inner = index(image("arm64")).top
    document["manifests"].append(descriptor(inner.descriptor(ARM64)))


def artifact(document: dict[str, Any]) -> None:
    document["manifests"][0]["mediaType"] = "application/vnd.something+json"


def empty(document: dict[str, Any]) -> None:
    document["manifests"] = []


def only_attestation(document: dict[str, Any]) -> None:
    del document["manifests"][0]


@pytest.mark.parametrize(
    "change",
    [
        orphan,
        without_reference,
        other_reference_type,
        unmarked,
        without_platform,
        nested,
        artifact,
        empty,
        only_attestation,
    ],
)
def test_an_index_that_clients_would_misread_is_refused_by_name(change: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(DataError, match="staged:tag"):
        assemble((changed(attested(image()), change),), (AMD64,))


@pytest.mark.parametrize("change", [orphan, without_reference, other_reference_type])
def test_without_attestations_it_does_not_matter_what_they_are_about(
    change: Callable[[dict[str, Any]], object],
) -> None:
    made = assemble((changed(attested(image()), change),), (AMD64,), attestations=False)
    assert [child.digest for child in made.children] == [image().top.digest]


def test_an_attestation_listed_twice_is_kept_once() -> None:
    def twice(document: dict[str, Any]) -> None:
        document["manifests"].append(document["manifests"][1])

    assert len(assemble((changed(attested(image()), twice),), (AMD64,)).children) == 2


def test_every_attestation_of_an_image_is_kept_in_order() -> None:
    about = attestation(image("arm64"))

    def second(document: dict[str, Any]) -> None:
        marks = {"annotations": {REFERENCE_TYPE: ATTESTATION, REFERENCE_DIGEST: image().top.digest}}
        document["manifests"].insert(0, descriptor(about.top.descriptor(UNKNOWN)) | marks)

    made = assemble((changed(attested(image()), second),), (AMD64,))
    assert [child.digest for child in made.children] == [
        image().top.digest,
        about.top.digest,
        attestation(image()).top.digest,
    ]


def test_facts_are_read_from_a_configuration() -> None:
    facts = read_facts(config_of(image("arm64", variant="v8", version="1.2")), "it")
    assert facts.platform == ARM64
    assert facts.labels == {REVISION: COMMIT, VERSION: "1.2"}
    assert read_facts(b'{"os": "linux", "architecture": "arm", "variant": "v7"}', "it").platform == ARM7


@pytest.mark.parametrize(
    "config",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b'{"os": "linux"}',
        b'{"os": 1, "architecture": "amd64"}',
        b'{"os": "linux", "architecture": "amd64", "config": ["x"]}',
        b'{"os": "linux", "architecture": "amd64", "config": {"Labels": ["a"]}}',
        b'{"os": "linux", "architecture": "amd64", "config": {"Labels": {"a": 1}}}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_a_malformed_configuration_is_named(config: bytes) -> None:
    with pytest.raises(DataError, match="of staged"):
        read_facts(config, "staged")
