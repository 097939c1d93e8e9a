"""The client of DockerHub's account API against the stand-in, whose tags are a real registry's."""

from __future__ import annotations

import json
import random
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tasks.registry.hub import HubTag, open_hub
from tasks.registry.hub_door import Account, HubDoor, parse_time
from tasks.registry.references import RepositoryName
from tasks.support.errors import (
    ConfigurationError,
    CredentialsError,
    DataError,
    MissingInputError,
    OmniError,
    ServiceRefusedError,
    TemporaryError,
    UsageError,
)
from tasks.support.settings import load
from tests.factory_image import attested, image, index
from tests.hub_faults import FORMS, HangUp, Lose, Reply, Seen, busy, times
from tests.hub_scenes import USER, Scene, days_ago, nightly, plain_image, quick_registry
from tests.hub_server import LOGIN_ROUTE, READ, TOKEN_ROUTE, WRITE, Credential, Hub, hub_before
from tests.registry_servers import Registry

pytestmark = pytest.mark.service

PASSWORD = Credential("somebody", "correct horse", kind="password")
SECOND_FACTOR = Credential("careful", "battery staple", kind="password", two_factor=True)
CAREFUL_TOKEN = Credential("careful", "dckr_pat_careful")
ORGANIZATION = Credential("some-org", "dckr_oat_organization", kind="oat")
READER = Credential("reader", "dckr_pat_reader", scopes=frozenset({READ, WRITE}))


@pytest.fixture(scope="module")
def own_registry() -> Iterator[Registry]:
    with quick_registry() as registry:
        yield registry


@pytest.fixture
def hub(own_registry: Registry) -> Iterator[Hub]:
    with hub_before(own_registry) as hub:
        hub.credentials = [USER, PASSWORD, SECOND_FACTOR, CAREFUL_TOKEN, ORGANIZATION, READER]
        yield hub


@pytest.fixture
def scene(hub: Hub) -> Scene:
    return Scene(hub, hub.registry.new_name())


@pytest.fixture
def tagged(scene: Scene) -> Scene:
    """Return a repository with two tags on one image, and one on another."""
    one = plain_image("one")
    scene.push(
        {"latest": one, "v1.4.0": one, nightly(1): plain_image("two")}, {"latest": 1, "v1.4.0": 2, nightly(1): 3}
    )
    return scene


def is_api(seen: Seen) -> bool:
    return seen.path.startswith("/v2/namespaces/")


def is_log_in(seen: Seen) -> bool:
    return seen.method == "POST"


def deletes(seen: Seen) -> bool:
    return seen.method == "DELETE"


# Who logs in, and how


@pytest.mark.parametrize("who", [USER, PASSWORD, CAREFUL_TOKEN, ORGANIZATION], ids=lambda who: f"{who.name} {who.kind}")
def test_the_newer_route_takes_every_kind_of_secret(tagged: Scene, who: Credential) -> None:
    assert len(tagged.open(who).list_tags()) == 3
    assert [seen.path for seen in tagged.hub.of("POST")] == [TOKEN_ROUTE]
    assert tagged.hub.routes == {("POST", "/v2/auth"), ("GET", "/v2/namespaces")}
    assert tagged.open(who).delete_tag(nightly(1))


@pytest.mark.parametrize("missing", [404, 405, 501])
def test_the_older_route_is_used_where_the_newer_is_not_there(tagged: Scene, missing: int) -> None:
    tagged.hub.rule = times(1, lambda seen: seen.path == TOKEN_ROUTE, Reply(missing, b"not here"))
    assert len(tagged.open().list_tags()) == 3
    assert [seen.path for seen in tagged.hub.of("POST")] == [TOKEN_ROUTE, LOGIN_ROUTE]


@pytest.mark.parametrize("refusal", [400, 401, 403, 422])
def test_the_older_route_is_used_where_the_newer_refuses_the_kind(tagged: Scene, refusal: int) -> None:
    tagged.hub.rule = times(1, lambda seen: seen.path == TOKEN_ROUTE, Reply(refusal, b'{"detail": "use a token"}'))
    assert len(tagged.open(PASSWORD).list_tags()) == 3
    assert [seen.path for seen in tagged.hub.of("POST")] == [TOKEN_ROUTE, LOGIN_ROUTE]


REFUSED = {
    "wrong": (Credential("somebody", "dckr_pat_wrong"), "DockerHub does not accept DOCKERHUB_TOKEN for somebody: 401"),
    "wrong organization": (Credential("some-org", "dckr_oat_wrong"), "does not accept DOCKERHUB_TOKEN for some-org"),
    "user's name with an organization's token": (
        Credential("somebody", ORGANIZATION.secret),
        "does not accept DOCKERHUB_TOKEN for somebody",
    ),
    "second factor": (SECOND_FACTOR, "DockerHub account careful has two-factor authentication"),
}


@pytest.mark.parametrize("missing", [set(), {TOKEN_ROUTE}], ids=["both routes", "older route"])
@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_log_in_is_one_sentence(tagged: Scene, case: str, missing: set[str]) -> None:
    who, words = REFUSED[case]
    tagged.hub.missing_routes = missing
    with pytest.raises(CredentialsError, match=words) as refused:
        tagged.open(who).list_tags()
    assert refused.value.exit_code == 77
    assert "DOCKERHUB_TOKEN" in f"{refused.value.message} {refused.value.hint}"
    assert_tells_no_secret(refused.value, who, tagged)
    assert not tagged.hub.of("GET")


def test_an_organization_token_is_not_sent_where_it_cannot_work(scene: Scene) -> None:
    with pytest.raises(CredentialsError):
        scene.open(Credential("some-org", "dckr_oat_wrong")).list_tags()
    assert [seen.path for seen in scene.hub.of("POST")] == [TOKEN_ROUTE]


@pytest.mark.parametrize("key", ["DOCKERHUB_USERNAME", "DOCKERHUB_TOKEN"])
def test_a_missing_credential_is_named_before_any_request(scene: Scene, key: str) -> None:
    environment = dict(scene.settings.environment)
    del environment[key]
    with pytest.raises(CredentialsError, match=f"{key} is not set: it is needed to list and delete tags"):
        open_hub(scene.name, load(environment=environment))
    assert not scene.hub.seen


def test_a_line_break_after_the_secret_is_not_part_of_it(tagged: Scene) -> None:
    who = Credential("somebody\n", f"{USER.secret}\r\n")
    assert len(tagged.open(who).list_tags()) == 3


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"access_token": null}', b'{"access_token": ""}', b"<html>"])
def test_a_log_in_without_a_token_is_a_refusal(scene: Scene, body: bytes) -> None:
    scene.hub.rule = times(9, is_log_in, Reply(200, body))
    with pytest.raises(ServiceRefusedError, match="DockerHub answers 200 to the log-in"):
        scene.open().list_tags()


@pytest.mark.parametrize(
    "token", ["hush\r\nX: y", "hush\u20ac", "hush\xe9", "hush\x00", "hush hush", " hush", "hush\n"]
)
def test_a_token_that_no_header_can_hold_is_a_refusal(scene: Scene, token: str) -> None:
    scene.hub.rule = times(9, is_log_in, Reply(200, json.dumps({"access_token": token}).encode()))
    with pytest.raises(ServiceRefusedError, match="that no header can hold") as caught:
        scene.open().list_tags()
    assert "hush" not in "".join(traceback.format_exception(caught.value))
    assert [seen.path for seen in scene.hub.seen] == [TOKEN_ROUTE]


@pytest.mark.parametrize("break_", ["\r\n", "\n", "\t", "\0", "\x7f", "\x1b[2J", "\u2028"])
@pytest.mark.parametrize("key", ["DOCKERHUB_USERNAME", "DOCKERHUB_TOKEN"])
def test_a_credential_on_two_lines_is_named_before_any_request(scene: Scene, key: str, break_: str) -> None:
    environment = {**scene.settings.environment, key: f"hush{break_}hush"}
    with pytest.raises(CredentialsError, match=f"{key} has a line break") as caught:
        open_hub(scene.name, load(environment=environment))
    assert "hush" not in "".join(traceback.format_exception(caught.value))
    assert not scene.hub.seen


def test_a_password_may_have_letters_of_any_alphabet(tagged: Scene) -> None:
    who = Credential("somebody", "\u65e5\u672c \xe9\u20ac", kind="password")
    tagged.hub.credentials.append(who)
    assert len(tagged.open(who).list_tags()) == 3


def assert_tells_no_secret(error: OmniError, who: Credential, scene: Scene) -> None:
    """Check everything that could be printed of an error and of the client."""
    told = "".join(traceback.format_exception(error)) + f"{error.hint} {error!r} {vars(error)}"
    client = scene.open(who)
    told += repr(client) + repr(vars(client)["_door"].account)
    for secret in (who.secret, who.secret.strip(), *scene.hub.tokens):
        assert secret not in told


@pytest.mark.parametrize("status", [400, 401, 403, 409, 500, 503])
def test_an_answer_that_repeats_the_secret_is_not_passed_on(scene: Scene, status: int) -> None:
    echo = f'{{"detail": "what you sent: {PASSWORD.secret}", "login_2fa_token": "intermediate"}}'.encode()
    scene.hub.rule = times(99, is_log_in, Reply(status, echo))
    with pytest.raises(OmniError) as refused:
        scene.open(PASSWORD).list_tags()
    assert_tells_no_secret(refused.value, PASSWORD, scene)
    assert "intermediate" not in f"{refused.value} {refused.value.hint}"


def test_the_tokens_that_an_answer_repeats_are_not_passed_on(tagged: Scene) -> None:
    client = tagged.open()
    client.list_tags()
    token = next(iter(tagged.hub.tokens))
    tagged.hub.rule = times(99, is_api, Reply(403, f'{{"message": "bad {token}"}}'.encode()))
    with pytest.raises(CredentialsError, match=r"bad \*\*\*"):
        client.list_tags()


# The token that was logged in for


def test_an_expired_token_is_renewed_in_the_middle_of_the_work(tagged: Scene) -> None:
    tagged.hub.uses = 1
    tagged.hub.page_cap = 1
    client = tagged.open()
    assert [tag.name for tag in client.list_tags()] == ["latest", nightly(1), "v1.4.0"]
    assert client.delete_tag(nightly(1))
    assert len(tagged.hub.of("POST")) == 5  # three pages, the deletion, and its confirmation


def test_a_token_that_is_never_good_is_renewed_once(tagged: Scene) -> None:
    tagged.hub.uses = 0
    with pytest.raises(CredentialsError, match=f"401 to GET /v2/namespaces/{tagged.repository.split('/')[0]}/"):
        tagged.open().list_tags()
    assert len(tagged.hub.of("POST")) == 2


# What a token may do


@pytest.mark.parametrize("hides", [False, True], ids=["403", "500 that quotes a 401"])
def test_a_missing_right_is_one_sentence_and_not_tried_again(tagged: Scene, hides: bool) -> None:
    tagged.hub.hides_refusals = hides
    with pytest.raises(CredentialsError, match="the token of reader lacks the right") as refused:
        tagged.open(READER).delete_tag("latest")
    assert refused.value.exit_code == 77
    assert "read, write and delete" in str(refused.value.hint)
    assert len(tagged.hub.of("DELETE")) == 1
    assert tagged.waits == []
    assert len(tagged.tags) == 3


def test_an_organization_token_works_only_on_the_routes_that_we_use(tagged: Scene) -> None:
    """Show that the stand-in refuses what the real service refuses, so that the other tests mean something."""
    client = tagged.open(ORGANIZATION)
    client.list_tags()
    door = HubDoor(tagged.hub.address, Account(ORGANIZATION.name, ORGANIZATION.secret))
    with pytest.raises(CredentialsError, match="organization access token is not allowed"):
        door.ask("GET", f"/v2/repositories/{tagged.repository}/tags")


# Listing


def test_a_tag_is_read_whole(scene: Scene) -> None:
    made = index(image("amd64"), image("arm64"), attest=True)
    scene.push({"v1": made, "single": image("amd64")}, {"v1": 2, "single": None})
    single, tag = scene.open().list_tags()
    assert tag == HubTag(
        "v1",
        made.top.digest,
        parse_time(days_ago(2)),
        sum(manifest.size for manifest in made.below),
        tuple(manifest.digest for manifest in made.below),
    )
    assert (single.digest, single.last_pushed) == (image("amd64").top.digest, None)
    assert scene.open().find_tag("v1") == tag


def many(scene: Scene, count: int) -> list[str]:
    """Fill the repository with tags on one image, pushed in no order of their names."""
    names = [f"tag-{number:04}" for number in range(count)]
    random.Random(count).shuffle(names)
    scene.push_copy(f"many-{count}", dict.fromkeys(names, plain_image("many")))
    scene.hub.pushed = {name: days_ago(number) for number, name in enumerate(names)}
    return sorted(names)


@pytest.mark.parametrize("order", ["newest", "oldest", "name"])
@pytest.mark.parametrize(("count", "cap", "pages"), [(1, 100, 1), (7, 7, 1), (7, 6, 2), (25, 5, 5)])
def test_every_page_is_read_whatever_the_order(scene: Scene, order: str, count: int, cap: int, pages: int) -> None:
    names = many(scene, count)
    scene.hub.order, scene.hub.page_cap = order, cap
    assert [tag.name for tag in scene.open().list_tags()] == names
    assert len(scene.hub.of("GET")) == pages


def test_an_ignored_page_size_is_no_harm(scene: Scene) -> None:
    names = many(scene, 25)
    scene.hub.page_cap = 10
    assert [tag.name for tag in scene.open().list_tags()] == names


@pytest.mark.parametrize("lie", [-1, 1, 1000])
def test_a_total_that_is_not_what_is_listed_is_refused(scene: Scene, lie: int) -> None:
    many(scene, 7)
    scene.hub.page_cap = 3
    scene.hub.count = lambda count: count + lie
    with pytest.raises(ServiceRefusedError, match=rf"has {7 + lie} tags, and lists 7"):
        scene.open().list_tags()


def test_tags_that_come_while_they_are_listed_are_listed_again(scene: Scene) -> None:
    many(scene, 7)
    scene.hub.page_cap, scene.hub.order = 3, "newest"
    pushed: list[str] = []

    def push_between(seen: Seen) -> None:
        if seen.query.get("page") == "2" and not pushed:
            pushed.append("new")
            scene.push({"new": plain_image("new")}, {"new": -1})

    scene.hub.rule = push_between
    assert len(scene.open().list_tags()) == 8


def test_tags_that_never_rest_are_a_temporary_failure(scene: Scene) -> None:
    many(scene, 7)
    scene.hub.page_cap = 3
    count = iter(range(100))
    scene.hub.count = lambda _: next(count)
    with pytest.raises(TemporaryError, match="change while they are listed"):
        scene.open().list_tags()


@pytest.mark.parametrize("beyond", [404, 200])
def test_a_page_that_vanished_is_no_end(scene: Scene, beyond: int) -> None:
    """A listing whose last page is announced and not there is begun again, and never taken for whole."""
    many(scene, 7)
    scene.hub.page_cap, scene.hub.beyond = 3, beyond
    scene.hub.following = lambda url: url.replace("page=2", "page=9")
    with pytest.raises((TemporaryError, ServiceRefusedError), match=r"change while|has 7 tags, and lists 3"):
        scene.open().list_tags()
    scene.hub.following = lambda url: url
    assert len(scene.open().list_tags()) == 7


ENDLESS = {
    "the same page": lambda _: "?page=1",
    "a circle": lambda url: url.replace("page=3", "page=1"),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_pages_in_a_circle_are_refused(scene: Scene, case: str) -> None:
    many(scene, 7)
    scene.hub.page_cap = 3
    scene.hub.following = ENDLESS[case]
    with pytest.raises(ServiceRefusedError, match="has no end"):
        scene.open().list_tags()


@pytest.mark.parametrize(
    "following",
    [
        "http://127.0.0.1:1/v2/namespaces/x/repositories/y/tags?page=2",
        "//evil.example/v2?page=2",
        "https://hub.docker.com.evil.example/?page=2",
        "",
        "http://[::1",
    ],
)
def test_pages_elsewhere_are_refused_and_not_asked(scene: Scene, following: str) -> None:
    many(scene, 7)
    scene.hub.page_cap = 3
    scene.hub.following = lambda _: following
    with pytest.raises(ServiceRefusedError, match="goes on at another address"):
        scene.open().list_tags()
    assert len(scene.hub.of("GET")) == 1


def test_a_page_on_another_route_is_asked_on_ours(scene: Scene) -> None:
    """The next page's address may name the older route, which refuses organization tokens."""
    names = many(scene, 7)
    scene.hub.page_cap = 3
    scene.hub.following = lambda url: url.replace("/v2/namespaces/", "/v2/repositories/").replace(
        "/repositories/t", "/t"
    )
    assert [tag.name for tag in scene.open(ORGANIZATION).list_tags()] == names


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"{}", b'{"results": []}', b'{"count": 1, "results": {}}', b"<html>sign in</html>", b"\xff"],
)
def test_a_page_that_is_none_is_refused(scene: Scene, body: bytes) -> None:
    scene.hub.rule = times(1, is_api, Reply(200, body))
    with pytest.raises(ServiceRefusedError, match="no page of the tags"):
        scene.open().list_tags()


@pytest.mark.parametrize(
    "row", ["{}", "null", '"x"', '{"name": null}', '{"name": "../x"}', '{"name": "a/b"}', '{"name": ""}']
)
def test_a_tag_without_a_sound_name_is_refused(scene: Scene, row: str) -> None:
    scene.hub.rule = times(1, is_api, Reply(200, f'{{"count": 1, "next": null, "results": [{row}]}}'.encode()))
    with pytest.raises(DataError, match="DockerHub lists a tag of"):
        scene.open().list_tags()


@pytest.mark.parametrize("lacking", ["digest", "tag_last_pushed", "images", "full_size"])
def test_a_tag_may_lack_everything_but_its_name(tagged: Scene, lacking: str) -> None:
    tagged.hub.unlisted = {lacking}
    tags = tagged.open().list_tags()
    assert [tag.name for tag in tags] == ["latest", nightly(1), "v1.4.0"]
    field = {"tag_last_pushed": "last_pushed", "full_size": "size"}.get(lacking, lacking)
    assert all(not getattr(tag, field) for tag in tags)


def test_an_unknown_repository_is_missing_input(scene: Scene) -> None:
    with pytest.raises(MissingInputError, match=f"no repository docker.io/{scene.repository} that somebody may see"):
        scene.open().list_tags()


# Servers that are busy or break


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("where", ["log-in", "list", "delete"])
def test_every_form_of_429_is_waited_for(tagged: Scene, form: str, where: str) -> None:
    matches = {"log-in": is_log_in, "list": is_api, "delete": deletes}[where]
    tagged.hub.rule = times(2, matches, busy(form, 30))
    assert tagged.open().delete_tag(nightly(1))
    assert tagged.tags == ["latest", "v1.4.0"]
    named = form not in {"no header", "nonsense", "plain text"}
    assert len(tagged.waits) == 2
    assert (
        all(28 <= wait <= 31 for wait in tagged.waits) if named else 0.5 <= tagged.waits[0] <= 1 <= tagged.waits[1] <= 2
    )


@pytest.mark.parametrize("form", ["seconds", "date", "timestamp", "timestamp in Retry-After"])
def test_a_pause_that_is_too_long_is_told_and_not_made(tagged: Scene, form: str) -> None:
    tagged.hub.rule = times(1, is_api, busy(form, 3600))
    with pytest.raises(TemporaryError, match=r"asks to wait (3600|359\d) s") as refused:
        tagged.open().list_tags()
    assert refused.value.exit_code == 75
    assert tagged.waits == []


def test_a_moment_that_is_past_is_not_asked_again_at_once(tagged: Scene) -> None:
    tagged.hub.rule = times(1, is_api, busy("timestamp", -100))
    assert tagged.open().list_tags()
    assert 0.5 <= tagged.waits[0] <= 1


@pytest.mark.parametrize("form", FORMS)
def test_an_endless_429_ends(tagged: Scene, form: str) -> None:
    tagged.hub.rule = times(99, is_api, busy(form, 1))
    with pytest.raises(TemporaryError, match=r"DockerHub answers 429 to GET .* \(4 attempts\)"):
        tagged.open(attempts=4).list_tags()
    assert len(tagged.hub.of("GET")) == 4


@pytest.mark.parametrize("status", [500, 502, 503, 504])
@pytest.mark.parametrize("where", ["log-in", "list", "delete"])
def test_bursts_of_5xx_are_waited_for(tagged: Scene, status: int, where: str) -> None:
    matches = {"log-in": is_log_in, "list": is_api, "delete": deletes}[where]
    tagged.hub.rule = times(3, matches, Reply(status, b"<html>oops</html>"))
    assert tagged.open().delete_tag(nightly(1))
    assert [round(wait, 1) for wait in tagged.waits] == sorted(round(wait, 1) for wait in tagged.waits)
    assert len(tagged.waits) == 3


@pytest.mark.parametrize("where", ["log-in", "list"])
def test_cut_connections_are_tried_again(tagged: Scene, where: str) -> None:
    tagged.hub.rule = times(2, is_log_in if where == "log-in" else is_api, HangUp())
    assert len(tagged.open().list_tags()) == 3


def test_a_server_that_only_hangs_up_is_a_temporary_failure(tagged: Scene) -> None:
    tagged.hub.rule = times(99, is_api, HangUp())
    with pytest.raises(TemporaryError, match="the connection broke"):
        tagged.open().list_tags()
    assert len(tagged.waits) == 5


@pytest.mark.parametrize("page", [1, 2, 3])
@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(500), TemporaryError),
        (Reply(429), TemporaryError),
        (Reply(403), CredentialsError),
        (Reply(401), CredentialsError),
        (Reply(400), ServiceRefusedError),
        (Reply(200, b"sorry"), ServiceRefusedError),
    ],
    ids=["500", "429", "403", "401", "400", "no page"],
)
def test_a_page_that_fails_fails_the_whole(scene: Scene, page: int, reply: Reply, error: type[OmniError]) -> None:
    many(scene, 7)
    scene.hub.page_cap = 3
    scene.hub.rule = times(99, lambda seen: seen.query.get("page", "1") == str(page) and is_api(seen), reply)
    with pytest.raises(error):
        scene.open(attempts=2).list_tags()


def test_a_redirection_is_not_followed(scene: Scene) -> None:
    elsewhere = Reply(307, b"", (("Location", "http://127.0.0.1:1/"),))
    for matches in (is_log_in, is_api):
        scene.hub.rule = times(1, matches, elsewhere)
        with pytest.raises(ServiceRefusedError, match="is redirected elsewhere"):
            scene.open().list_tags()


# Deleting


def test_a_deletion_leaves_the_tags_beside_it(tagged: Scene) -> None:
    client = tagged.open()
    assert client.delete_tag("v1.4.0")
    assert tagged.tags == ["latest", nightly(1)]
    assert client.find_tag("v1.4.0") is None
    assert client.find_tag("latest") is not None
    assert [seen.status for seen in tagged.hub.of("DELETE")] == [204]


def test_a_tag_that_is_gone_is_success(tagged: Scene) -> None:
    assert tagged.open().delete_tag("nobody") is False
    assert len(tagged.tags) == 3


def test_a_deletion_is_confirmed_though_it_shows_late(tagged: Scene) -> None:
    tagged.hub.keeps_deleted = 3
    assert tagged.open().delete_tag("v1.4.0")
    assert len(tagged.waits) == 3


def test_a_deletion_that_never_shows_is_refused(tagged: Scene) -> None:
    tagged.hub.rule = times(9, deletes, Reply(204, b""))
    with pytest.raises(ServiceRefusedError, match=r"answers 204 to the deletion of .*:v1\.4\.0, and still has the tag"):
        tagged.open().delete_tag("v1.4.0")


@pytest.mark.parametrize("fault", [HangUp(after=True), Lose(500), Lose(503)], ids=["cut", "500", "503"])
def test_a_deletion_whose_answer_is_lost_is_found_done(tagged: Scene, fault: HangUp | Lose) -> None:
    tagged.hub.rule = times(1, deletes, fault)
    tagged.open().delete_tag("v1.4.0")
    assert tagged.tags == ["latest", nightly(1)]
    assert [seen.status for seen in tagged.hub.of("DELETE")][-1] == 404


def test_an_immutable_tag_is_refused(tagged: Scene) -> None:
    tagged.hub.immutable = {"v1.4.0"}
    with pytest.raises(ServiceRefusedError, match=r"400 to DELETE .*: tag v1\.4\.0 is immutable"):
        tagged.open().delete_tag("v1.4.0")


@pytest.mark.parametrize("tag", ["", "../latest", "a/b", "a?b", "a b", "-x", "x" * 129, "latest\n"])
def test_a_tag_that_is_none_is_a_usage_error_before_any_request(tagged: Scene, tag: str) -> None:
    for deed in (tagged.open().delete_tag, tagged.open().find_tag):
        with pytest.raises(UsageError, match="not a tag"):
            deed(tag)
    assert not tagged.hub.seen


# Addresses and names


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://hub.example", "would send a credential unencrypted"),
        ("http://localhost.example", "would send a credential unencrypted"),
        ("http://127.0.0.1.example", "would send a credential unencrypted"),
        ("ftp://127.0.0.1", "not the address of an account API"),
        ("hub.example", "not the address of an account API"),
        ("https://", "not the address of an account API"),
        ("https://[::1", "not the address of an account API"),
        ("https://hub.example:port", "not the address of an account API"),
        ("https://hub.example:99999", "not the address of an account API"),
        ("https://me:pass@hub.example", "not the address of an account API"),
        ("https://hub.example/?x=1", "not the address of an account API"),
    ],
)
def test_an_address_that_credentials_may_not_go_to_is_refused(scene: Scene, address: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as refused:
        open_hub(scene.name, scene.settings_of(USER, OMNI_CI_HUB_URL=address))
    assert "pass@" not in refused.value.message


@pytest.mark.parametrize("address", ["http://localhost:1", "http://[::1]:1/", "https://hub.example/api", None])
def test_other_addresses_are_taken(scene: Scene, address: str | None) -> None:
    open_hub(scene.name, scene.settings_of(USER, OMNI_CI_HUB_URL=address or ""))


@pytest.mark.parametrize("name", ["localhost:5000/one", "localhost:5000/a/b/c"])
def test_a_repository_has_a_namespace_and_a_name(scene: Scene, name: str) -> None:
    with pytest.raises(UsageError, match="not a repository of DockerHub"):
        open_hub(RepositoryName.parse(name), scene.settings)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-30T12:00:00Z", datetime(2026, 11, 30, 12, tzinfo=UTC)),
        ("2026-11-30T12:00:00.5Z", datetime(2026, 11, 30, 12, 0, 0, 500_000, tzinfo=UTC)),
        ("2026-11-30T12:00:00.123456789Z", datetime(2026, 11, 30, 12, 0, 0, 123_456, tzinfo=UTC)),
        ("2026-11-30T13:00:00+01:00", datetime(2026, 11, 30, 12, tzinfo=UTC)),
        ("2026-11-30T12:00:00", datetime(2026, 11, 30, 12, tzinfo=UTC)),
        ("0001-01-01T00:00:00Z", None),
        ("0001-01-01T00:00:00+01:00", None),
        ("9999-12-31T23:59:59-01:00", None),
        ("yesterday", None),
        ("", None),
        (None, None),
        (1764504000, None),
    ],
)
def test_times(text: object, moment: datetime | None) -> None:
    assert parse_time(text) == moment


def test_attested_images_are_listed_with_their_attestations(scene: Scene) -> None:
    made = attested(image("amd64"))
    scene.push({"one": made})
    assert set(scene.open().list_tags()[0].images) == {manifest.digest for manifest in made.below}
