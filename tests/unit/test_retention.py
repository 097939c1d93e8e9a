"""What a clean-up's planner keeps and deletes, and why."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.registry.retention import (
    DELETE,
    KEEP,
    CleanupPlan,
    RetentionRule,
    check_cap,
    digests_of,
    plan_cleanup,
    plan_rows,
)
from tasks.support.errors import DataError, UsageError

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
REPOSITORY = "docker.io/some/repository"


@dataclass(frozen=True)
class Tag:
    name: str
    digest: str | None
    last_pushed: datetime | None


def digest(number: int) -> str:
    return f"sha256:{number:064x}"


def days(count: float) -> datetime:
    return NOW - timedelta(days=count)


def build(number: int, age: float | None = None, name: str | None = None) -> Tag:
    """Make the tag of a build: the larger its number, the older; its name sorts otherwise."""
    sha = f"{random.Random(number).getrandbits(160):040x}"
    return Tag(name or f"nightly-{sha}", digest(number), days(number if age is None else age))


def builds(count: int) -> list[Tag]:
    return [build(number) for number in range(1, count + 1)]


def plan(tags: list[Tag], rule: RetentionRule | None = None, protected: frozenset[str] = frozenset()) -> CleanupPlan:
    return plan_cleanup(tags, rule or RetentionRule(), protected, NOW, repository=REPOSITORY)


def test_what_a_moving_tag_shows_keeps_its_tags() -> None:
    tags = builds(6)
    shown = [build(4, name="nightly"), Tag("nightly-x86_64", digest(5), days(1)), Tag("v1.0", digest(6), days(1))]
    moving = ("nightly", "nightly-x86_64", "latest")
    made = plan_cleanup([*tags, *shown], RetentionRule(keep=1), (), NOW, moving=moving)
    assert gone(made) == [tags[number].name for number in (5, 2, 1)]
    kept = {choice.tag: choice.reason for choice in made.choices if choice.verdict == "keep"}
    assert kept[tags[3].name] == "nightly shows the same now"
    assert kept[tags[4].name] == "nightly-x86_64 shows the same now"


def gone(made: CleanupPlan) -> list[str]:
    return [choice.tag for choice in made.deletions]


def reason(made: CleanupPlan, tag: str) -> str:
    return next(choice.reason for choice in made.choices if choice.tag == tag)


ROLLING = [Tag(name, digest(900), NOW) for name in ("nightly", "nightly-x86_64", "nightly-aarch64", "latest", "v1.4.0")]
LOOKALIKES = [
    Tag(name, digest(901), days(500))
    for name in (
        "nightly-fix-please",
        "nightly-" + "a" * 39,
        "nightly-" + "a" * 41,
        "nightly-" + "A" * 40,
        "nightly-rocm714-" + "a" * 40,
        "xnightly-" + "a" * 40,
        "nightly-" + "a" * 40 + "-x86_64",
        "Nightly-" + "a" * 40,
    )
]


def test_the_newest_builds_by_push_time_stay_and_nothing_else_is_a_candidate() -> None:
    made = builds(16)
    assert sorted(tag.name for tag in made) != [tag.name for tag in made]
    planned = plan([*ROLLING, *LOOKALIKES, *made])
    assert gone(planned) == [made[15].name, made[14].name]  # the oldest first
    assert reason(planned, made[13].name) == "number 14 of the newest 14"
    assert reason(planned, made[14].name) == "older than the newest 14, pushed 15 days ago"
    assert reason(planned, "nightly-fix-please") == "not a candidate"
    assert len(planned.choices) == len({choice.tag for choice in planned.choices}) == 16 + len(ROLLING + LOOKALIKES)
    shown = plan_rows(planned)
    assert [row[:2] for row in shown[:3]] == [
        (DELETE, made[15].name),
        (DELETE, made[14].name),
        (KEEP, made[0].name),
    ]
    assert len(shown) == 16  # a row for each candidate
    assert len(plan_rows(planned, every=True)) == len(planned.choices)
    assert shown[0] == (
        DELETE,
        made[15].name,
        digest(16),
        "2026-11-14 12:00",
        "older than the newest 14, pushed 16 days ago",
    )


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"last_pushed": None}, "when it was pushed is not known"),
        ({"digest": None}, "what it points at is not known"),
    ],
    ids=str,
)
def test_a_tag_of_which_something_is_not_known_stays_and_takes_no_place(changed: dict[str, None], why: str) -> None:
    made = builds(16)
    odd = replace(build(99), **changed)  # type: ignore[arg-type]
    planned = plan([*made, odd])
    assert gone(planned) == [made[15].name, made[14].name]
    assert reason(planned, odd.name) == why


def test_young_tags_stay_whatever_their_number() -> None:
    rule = RetentionRule(keep=2, younger_than=timedelta(days=5))
    planned = plan(builds(8), rule)
    assert gone(planned) == [build(number).name for number in (8, 7, 6, 5)]  # exactly 5 days old is not younger
    assert reason(planned, build(4).name) == "pushed 4 days ago, within 5 days"


def test_a_protected_pattern_wins_over_a_wide_pattern_and_takes_no_place() -> None:
    wide = RetentionRule(pattern="nightly.*|v.*|latest", keep=1)
    planned = plan([*ROLLING, *builds(3)], wide)
    assert gone(planned) == [build(3).name, build(2).name]
    assert reason(planned, "v1.4.0") == "protected: it matches v[0-9].*"
    own = RetentionRule(keep=1, protected_patterns=(f"{build(3).name}|other",))
    assert gone(plan(builds(3), own)) == [build(2).name]
    # A part of a name is no match.
    assert len(gone(plan(builds(3), RetentionRule(keep=1, protected_patterns=("nightly",))))) == 2


def test_ties_in_time_are_decided_by_name() -> None:
    tied = [replace(tag, last_pushed=days(3)) for tag in builds(5)]
    names = sorted(tag.name for tag in tied)
    assert gone(plan(tied, RetentionRule(keep=2))) == names[:3]
    assert gone(plan(tied[::-1], RetentionRule(keep=2))) == names[:3]


def test_a_plan_above_the_cap_is_shown_and_refused_whole() -> None:
    planned = plan(builds(20), RetentionRule(most_deletions=5))
    assert len(planned.deletions) == 6
    with pytest.raises(DataError, match=f"this would delete 6 tags of {REPOSITORY}, and 5 are allowed"):
        check_cap(planned)
    check_cap(plan(builds(20), RetentionRule(most_deletions=6)))
    with pytest.raises(DataError, match="1 tag of"):
        check_cap(plan(builds(15), RetentionRule(most_deletions=0)))


def test_a_clock_behind_the_newest_push_is_refused() -> None:
    plan([replace(build(1), last_pushed=NOW + timedelta(minutes=30))])
    with pytest.raises(DataError, match=r"clock says 2026-11-30 12:00:00 UTC, but latest was pushed at 2026-12-01"):
        plan([Tag("latest", digest(1), NOW + timedelta(days=1))])


def test_a_tag_that_is_listed_twice_is_refused() -> None:
    with pytest.raises(DataError, match="latest is listed twice"):
        plan([Tag("latest", digest(1), NOW), Tag("latest", digest(2), NOW)])


def test_no_tags_are_no_work() -> None:
    assert plan([]).choices == ()
    assert plan(ROLLING).deletions == ()


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: RetentionRule(keep=0), "cannot keep 0 tags"),
        (lambda: RetentionRule(keep=-3), "cannot keep -3 tags"),
        (lambda: RetentionRule(most_deletions=-1), "not negative"),
        (lambda: RetentionRule(younger_than=timedelta(days=-1)), "not negative"),
        (lambda: RetentionRule(pattern="nightly-("), "not a pattern: 'nightly-"),
        (lambda: RetentionRule(protected_patterns=("v", "*")), r"not a pattern: '\*'"),
        (lambda: RetentionRule(protected_digests=frozenset({"sha256:12"})), "not a sha256 digest"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(made: object, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        made()  # type: ignore[operator]


# What is reclaimed


def index(number: int) -> tuple[str, ...]:
    """Name what the index of a build holds: two images and their attestations."""
    return tuple(digest(number * 1000 + part) for part in range(4))


def reclaiming(
    tags: list[Tag], contents: dict[str, tuple[str, ...]], protected: frozenset[str] = frozenset()
) -> CleanupPlan:
    rule = RetentionRule(keep=1)
    return plan_cleanup(tags, rule, protected, NOW, repository=REPOSITORY, contents=contents)


def test_an_index_goes_before_its_children() -> None:
    tags = builds(3)
    planned = reclaiming(tags, {digest(number): index(number) for number in (1, 2, 3)})
    assert [(item.digest, item.tags, item.children) for item in planned.reclaims] == [
        (digest(number), (build(number).name,), index(number)) for number in (3, 2)
    ]
    assert planned.actions()[0] == (
        "delete tag",
        f"{REPOSITORY}:{build(3).name}",
        "older than the newest 1, pushed 3 days ago",
    )
    assert [row[1] for row in planned.actions()[2:]] == [
        f"{REPOSITORY}@{part}" for number in (3, 2) for part in (digest(number), *index(number))
    ]


def test_what_a_kept_tag_holds_stays_and_its_twin_tag_goes() -> None:
    old = build(3)
    release = [Tag("v1.4.0", old.digest, days(3)), Tag("latest", old.digest, days(3))]
    planned = reclaiming([build(1), old, *release], {digest(1): index(1), digest(3): index(3)})
    assert gone(planned) == [old.name]
    assert planned.reclaims == ()
    assert planned.deletions[0].needed_by == "latest"
    assert reason(planned, old.name).endswith("; its manifest stays for latest")


def test_children_that_a_kept_index_or_tag_shares_stay() -> None:
    shared, tagged, own = digest(70), digest(71), digest(72)
    tags = [build(1), build(2), Tag("nightly-x86_64", tagged, NOW), Tag("latest", digest(80), NOW)]
    planned = reclaiming(
        tags, {digest(1): (), digest(2): (shared, tagged, own), tagged: (), digest(80): (shared, digest(81))}
    )
    assert [(item.digest, item.children) for item in planned.reclaims] == [(digest(2), (own,))]


def test_a_child_of_two_that_go_goes_once_with_the_last() -> None:
    shared = digest(70)
    planned = reclaiming(builds(3), {digest(1): (), digest(2): (shared,), digest(3): (shared,)})
    assert [(item.digest, item.children) for item in planned.reclaims] == [(digest(3), ()), (digest(2), (shared,))]


def test_a_manifest_with_a_tag_of_its_own_goes_after_the_index_that_holds_it() -> None:
    inner = replace(build(9), digest=digest(70))
    planned = reclaiming([build(1), build(2), inner], {digest(1): (), digest(2): (digest(70),), digest(70): ()})
    assert [(item.digest, item.tags) for item in planned.reclaims] == [
        (digest(2), (build(2).name,)),
        (digest(70), (inner.name,)),
    ]


@pytest.mark.parametrize("by_rule", [True, False])
def test_what_a_rollback_may_need_stays_with_all_that_it_holds(by_rule: bool) -> None:
    tags, contents = builds(3), {digest(1): (), digest(2): index(2), digest(3): index(3), digest(50): index(3)[:2]}
    protected = frozenset({digest(2), digest(50), digest(51)})  # the last one is not there any more
    rule = RetentionRule(keep=1, protected_digests=protected if by_rule else frozenset())
    given_by_caller = frozenset() if by_rule else protected
    planned = plan_cleanup(tags, rule, given_by_caller, NOW, contents=contents)
    assert gone(planned) == [build(3).name, build(2).name]
    assert [(item.digest, item.children) for item in planned.reclaims] == [(digest(3), index(3)[2:])]
    assert reason(planned, build(2).name).endswith("its manifest stays for a rollback")


@pytest.mark.parametrize("unknown", [None, digest(60)])
def test_nothing_is_reclaimed_when_a_kept_tag_cannot_be_read(unknown: str | None) -> None:
    tags = [*builds(3), Tag("v1", unknown, NOW)]
    contents = {digest(number): () for number in (1, 2, 3)}
    with pytest.raises(DataError, match="what the tag v1 points at cannot be read"):
        reclaiming(tags, contents)  # type: ignore[arg-type]
    assert len(plan(tags, RetentionRule(keep=1)).deletions) == 2  # without reclaiming it does not matter


def test_a_deleted_tag_on_nothing_needs_no_reclaiming() -> None:
    planned = reclaiming(builds(2), {digest(1): ()})
    assert (gone(planned), planned.reclaims) == ([build(2).name], ())


def test_digests_of() -> None:
    tags = [build(1), build(1, name="x"), replace(build(2), digest=None)]
    assert digests_of(tags, [digest(7)]) == {digest(1), digest(7)}


# Whatever the tags are

NAMES = st.one_of(
    st.integers(0, 2**160 - 1).map(lambda number: f"nightly-{number:040x}"),
    st.sampled_from(["latest", "nightly", "v1.4.0", "nightly-x86_64", "nightly-fix-please"]),
)
TAGS = st.lists(
    st.builds(
        Tag,
        NAMES,
        st.one_of(st.none(), st.integers(0, 6).map(digest)),
        st.one_of(st.none(), st.integers(0, 40).map(days)),
    ),
    max_size=30,
    unique_by=lambda tag: tag.name,
)
RULES = st.builds(
    RetentionRule,
    keep=st.integers(1, 20),
    younger_than=st.integers(0, 30).map(lambda count: timedelta(days=count)),
    protected_digests=st.frozensets(st.integers(0, 6).map(digest), max_size=2),
)
# Digests 0 to 2 may be indexes, of what may be tagged too.
CONTENTS = st.fixed_dictionaries(
    {digest(number): st.lists(st.integers(3, 9).map(digest), unique=True, max_size=4) for number in range(3)}
)


@given(
    tags=TAGS, rule=RULES, contents=CONTENTS, protected=st.frozensets(st.integers(0, 9).map(digest)), order=st.randoms()
)
def test_no_plan_takes_what_is_protected_or_needed(
    tags: list[Tag],
    rule: RetentionRule,
    contents: dict[str, list[str]],
    protected: frozenset[str],
    order: random.Random,
) -> None:
    known = {digest(number): () for number in range(10)} | {key: tuple(value) for key, value in contents.items()}
    reclaims = all(tag.digest for tag in tags)
    planned = plan_cleanup(tags, rule, protected, NOW, contents=known if reclaims else None)
    assert sorted(choice.tag for choice in planned.choices) == sorted(tag.name for tag in tags)
    assert all(choice.reason for choice in planned.choices)

    by_name = {tag.name: tag for tag in tags}
    timed = sorted(
        (tag for tag in tags if len(tag.name) == 48 and tag.last_pushed and tag.digest),
        key=lambda tag: (tag.last_pushed, tag.name),
    )
    expected = [tag for tag in timed[: -rule.keep] if NOW - (tag.last_pushed or NOW) >= rule.younger_than]
    assert gone(planned) == [tag.name for tag in expected]
    assert len(timed) - len(planned.deletions) >= min(rule.keep, len(timed))

    kept = [by_name[choice.tag] for choice in planned.choices if choice.verdict == KEEP]
    roots = {tag.digest for tag in kept} | protected | rule.protected_digests
    needed = roots | {child for root in roots for child in known.get(root or "", ())}
    reclaimed = [part for item in planned.reclaims for part in (item.digest, *item.children)]
    assert not needed & set(reclaimed)
    assert len(reclaimed) == len(set(reclaimed))
    position = {part: number for number, part in enumerate(reclaimed)}
    for part, number in position.items():
        assert all(position.get(child, number + 1) > number for child in known[part])
    deleted = {by_name[tag].digest for tag in gone(planned)}
    if reclaims:
        everything = deleted | {child for root in deleted for child in known[root or ""]}
        assert set(reclaimed) == everything - needed

    shuffled = list(tags)
    order.shuffle(shuffled)
    assert plan_cleanup(shuffled, rule, protected, NOW, contents=known if reclaims else None) == planned
