"""Lint: every rule of ours has a file that breaks it, on the line that it names, and one that does not."""

from __future__ import annotations

import dataclasses
import shutil
import stat
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tasks.images import dockerfile, lint_rules, linting
from tasks.images.catalogue import Catalogue, load
from tasks.images.lint_rules import RULES, Subject
from tasks.images.linting import Finding, lint, require_clean
from tasks.support.errors import ConfigurationError, DataError
from tasks.support.settings import CHECKOUT

GOOD = """\
# A file that breaks nothing.
ARG BASE_IMAGE
ARG TOOL_IMAGE
FROM ${TOOL_IMAGE} AS tool
FROM ${BASE_IMAGE} AS first
LABEL org.opencontainers.image.title="Ours"
ENV XDG_CACHE_HOME=/var/cache/ours \\
    HF_HOME=/var/cache/ours/huggingface
RUN install -d -m 1777 "${XDG_CACHE_HOME}"
ARG INDEX_URL
COPY . .
RUN --mount=type=secret,id=netrc,target=/root/.netrc \\
    python3 -m pip install ${INDEX_URL:+--index-url "${INDEX_URL}"} .
COPY --from=tool /opt/omni-ci /opt/omni-ci
RUN python3 /opt/omni-ci/scripts/image_tool.py && python3 /opt/omni-ci/scripts/image_checks.py
FROM first AS second
CMD ["/bin/bash"]
"""
IGNORED = (".git/config", ".git/logs")


def broken(rule: str, text: str, *targets: str | None, ignored: tuple[str, ...] = IGNORED) -> list[int]:
    subject = Subject(dockerfile.parse(text), targets or ("second",), ignored=ignored)
    return sorted({line for line, _ in RULES[rule](subject)})


def added(line: str, before: str = "COPY . .") -> str:
    assert before in GOOD
    return GOOD.replace(before, f"{line}\n{before}", 1)


def without(text: str) -> str:
    assert text in GOOD
    return GOOD.replace(text, "", 1)


HERE = 11  # the line of `COPY . .`, and so of what ``added`` adds
BROKEN = [
    ("base-is-argument", GOOD.replace("${BASE_IMAGE} AS", "debian:12 AS"), 5),
    ("base-is-argument", GOOD.replace("${BASE_IMAGE} AS", "${OTHER} AS"), 5),
    ("base-is-argument", GOOD.replace("${BASE_IMAGE} AS", "vllm/vllm-openai:${BASE_IMAGE} AS"), 5),
    ("base-is-argument", GOOD.replace("${BASE_IMAGE} AS", "--platform=linux/amd64 debian:12 AS"), 5),
    ("base-is-argument", added("COPY --from=busybox:1 /bin/sh /bin/sh"), HERE),
    ("base-is-argument", added("RUN --mount=type=bind,from=busybox:1,target=/b true"), HERE),
    ("base-without-default", GOOD.replace("ARG BASE_IMAGE", "ARG BASE_IMAGE=debian:12"), 2),
    ("no-directive", f"# syntax=docker/dockerfile:1\n{GOOD}", 1),
    ("no-directive", f"# A comment\n#SYNTAX = docker/dockerfile:1\n{GOOD}", 2),
    ("no-directive", f"# escape=`\n{GOOD}", 1),
    ("no-secret", added("ARG HF_TOKEN"), HERE),
    ("no-secret", added("ENV REGISTRY_PASSWORD=x"), HERE),
    ("no-secret", added("RUN git clone https://me:pw@example.test/x.git"), HERE),
    ("no-secret", added("RUN cat <<EOF\nhttps://me@example.test\nEOF"), HERE),
    ("no-fixed-index", added("RUN pip install --index-url https://index.test/x y"), HERE),
    ("no-fixed-index", added("RUN pip install --extra-index-url=https://index.test/x y"), HERE),
    ("no-fixed-index", added("RUN uv pip install --default-index 'https://index.test/x' y"), HERE),
    ("no-fixed-index", added("RUN pip install -i https://index.test/x y"), HERE),
    ("no-fixed-index", added("RUN pip install -f https://index.test/x y"), HERE),
    ("no-fixed-index", added("ENV PIP_EXTRA_INDEX_URL=https://index.test/x"), HERE),
    ("no-fixed-index", added("ARG EXTRA_INDEX_URL=https://index.test/x"), HERE),
    ("no-fixed-index", added("RUN export UV_EXTRA_INDEX_URL=https://index.test/x && true"), HERE),
    ("no-fixed-index", added("RUN export GOPROXY=https://proxy.test && true"), HERE),
    ("no-fixed-index", added("RUN fetch https://mirror.test/simple/"), HERE),
    (
        "no-fixed-index",
        added('RUN echo "deb [signed-by=/k] https://mirror.test/repo all main" > /etc/apt/x.list'),
        HERE,
    ),
    ("no-add-of-address", added("ADD https://example.test/x.tar /x"), HERE),
    ("no-add-of-address", added("ADD --chown=0:0 https://example.test/x.tar /x"), HERE),
    ("no-add-of-address", added("ADD git@example.test:a/b.git /x"), HERE),
    ("checked-downloads", added("RUN curl -LsSf https://example.test/install.sh | sh"), HERE),
    ("checked-downloads", added("RUN cd /x && wget https://example.test/x.deb && dpkg -i x.deb"), HERE),
    ("labels", without('LABEL org.opencontainers.image.title="Ours"\n'), 15),
    ("labels", added("LABEL org.opencontainers.image.version=1"), HERE),
    ("labels", added('LABEL org.opencontainers.image.revision="abc" other=1'), HERE),
    ("carries-tool", without("COPY --from=tool /opt/omni-ci /opt/omni-ci\n"), 15),
    ("carries-tool", GOOD.replace("FROM ${TOOL_IMAGE} AS tool", "FROM ${BASE_IMAGE} AS tool"), 16),
    ("carries-tool", GOOD.replace("image_tool.py", "other.py"), 16),
    ("checks-itself", GOOD.replace("image_checks.py", "other.py"), 16),
    ("checks-itself", GOOD.replace("CMD [", "RUN pip install late\nCMD ["), 16),
    ("caches-for-all", GOOD.replace("XDG_CACHE_HOME=", "OTHER="), 16),
    ("caches-for-all", GOOD.replace("1777", "0755"), 16),
    ("caches-for-all", added("ENV HF_HOME=/root/.cache/huggingface"), HERE),
    ("caches-for-all", added("ENV TRITON_CACHE_DIR ~/.triton"), HERE),
]


@pytest.mark.parametrize(("rule", "text", "line"), BROKEN)
def test_a_rule_names_the_line_that_breaks_it(rule: str, text: str, line: int) -> None:
    assert broken(rule, text) == [line]


@pytest.mark.parametrize("rule", RULES)
def test_a_good_file_breaks_no_rule(rule: str) -> None:
    assert broken(rule, GOOD) == []
    assert broken(rule, GOOD, None, "first") == []


def test_every_rule_is_broken_by_some_file_above() -> None:
    assert {rule for rule, _, _ in BROKEN} | {"filtered-context"} == set(RULES)


@pytest.mark.parametrize("ignored", [(), (".git/config",), (".git/logs", "x")])
def test_the_whole_source_is_copied_through_a_filter(ignored: tuple[str, ...]) -> None:
    assert broken("filtered-context", GOOD, ignored=ignored) == [HERE]
    assert broken("filtered-context", GOOD.replace("COPY . .", "COPY vllm_omni ."), ignored=ignored) == []


FINE = [
    ("no-add-of-address", "ADD archive.tar.gz /x"),
    ("no-fixed-index", "ARG INDEX_URL"),
    ("no-fixed-index", "RUN git clone https://example.test/x.git"),
    ("no-fixed-index", 'RUN pip install --index-url "${INDEX_URL}" x'),
    ("checked-downloads", "RUN curl -LO https://example.test/x && echo 'abc  x' | sha256sum --check"),
    ("checked-downloads", "RUN apt-get install -y curl wget"),
    ("no-secret", "RUN --mount=type=secret,id=token cat /run/secrets/token >/dev/null"),
    ("no-secret", "ENV VLLM_WORKER_MULTIPROC_METHOD=spawn"),
    ("base-is-argument", "COPY --from=0 /a /b"),
    ("labels", "LABEL org.opencontainers.image.licenses=Apache-2.0"),
    ("caches-for-all", "ENV HF_HOME=/var/cache/other"),
    ("no-directive", "# syntax=only a directive before anything else"),
]


@pytest.mark.parametrize(("rule", "line"), FINE)
def test_what_only_looks_like_it_is_let_through(rule: str, line: str) -> None:
    assert broken(rule, added(line)) == []


@pytest.fixture(scope="module")
def real() -> Catalogue:
    return load()


def test_our_own_dockerfiles_are_clean(real: Catalogue) -> None:
    assert [str(finding) for finding in lint(real)] == []


def test_what_the_images_must_prove_is_asked_for() -> None:
    """Facts of each device: a missing ONNX provider or decoder is found in the build, not by a user."""
    texts = {
        name: (CHECKOUT / "docker" / f"Dockerfile.{name}").read_text() for name in ("ci", "cuda", "rocm", "xpu", "npu")
    }
    assert "--onnx-provider ROCMExecutionProvider --torchcodec" in texts["rocm"]
    assert all('image_checks.py --vllm "${VLLM_VERSION}"' in text for text in texts.values())
    assert not any("conftest" in text for text in texts.values())
    entry = 'ENTRYPOINT ["vllm", "serve", "--omni"]'
    assert {name for name, text in texts.items() if entry in text} == {"rocm", "xpu"}


def test_an_image_whose_argument_or_target_is_not_there_is_found(real: Catalogue) -> None:
    changed = dict(real.images)
    changed["rocm-ci"] = dataclasses.replace(changed["rocm-ci"], target="tset", args={"MAX_JOBS": "1"})
    found = {(finding.rule, finding.file) for finding in lint(dataclasses.replace(real, images=changed))}
    assert found == {("targets", "docker/Dockerfile.rocm"), ("arguments", "docker/Dockerfile.rocm")}


def test_a_file_that_no_image_uses_is_found(real: Catalogue, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile.old").write_text("ARG B\nFROM ${B}\n")
    assert [(found.rule, found.line) for found in lint(real, tmp_path)] == [("used", 1)]


def test_hadolint_has_its_say(real: Catalogue, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile.bad").write_text("FROM debian\nRUN cd /tmp\n")
    found = {(finding.rule, finding.line) for finding in lint(real, tmp_path)}
    assert {("DL3006", 1), ("DL3003", 2)} <= found


def test_hadolint_is_not_led_by_the_users_own_settings(
    real: Catalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Dockerfile.bad").write_text("FROM debian\n")
    monkeypatch.setenv("HADOLINT_IGNORE", "DL3006")
    monkeypatch.setenv("HADOLINT_FORMAT", "tty")
    monkeypatch.setenv("HADOLINT_CONFIG", "/nowhere.yaml")
    assert "DL3006" in {finding.rule for finding in lint(real, tmp_path)}


@pytest.mark.parametrize("text", ["", "# nothing\n", "RUN true\n", 'FROM "debian\n'])
def test_a_file_that_is_no_dockerfile_is_a_finding(real: Catalogue, tmp_path: Path, text: str) -> None:
    file = tmp_path / "Dockerfile.odd"
    file.write_text(text)
    assert "readable" in {finding.rule for finding in linting.own_findings(file, [real.image("cuda-ci")])}


def test_without_hadolint_the_next_step_is_named(real: Catalogue, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="hadolint is not installed"):
        lint(real, hadolint=tmp_path / "hadolint")


def test_an_answer_that_is_no_json_is_one_line(real: Catalogue, tmp_path: Path) -> None:
    program = tmp_path / "hadolint"
    program.write_text("#!/bin/sh\necho '[{\"file\": 1'\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(Exception, match="hadolint's answer cannot be read"):
        lint(real, hadolint=program)


def test_findings_are_an_error_of_65() -> None:
    require_clean([])
    with pytest.raises(DataError, match="2 findings in 1 Dockerfile") as caught:
        require_clean([Finding("docker/x", 1, "a", "b"), Finding("docker/x", 2, "a", "b")])
    assert caught.value.exit_code == 65
    assert str(Finding("docker/x", 3, "labels", "none")) == "docker/x:3: labels: none"


def test_the_parser_reads_what_dockerfiles_are_made_of() -> None:
    parsed = dockerfile.parse(
        "ARG A=1\n"
        "FROM ${A} as One\n"
        "RUN a && \\\n"
        "    # a comment inside\n"
        "\n"
        "    b \\\n"
        "    c\n"
        "ENV old form of it\n"
        'COPY ["a b", "c"]\n'
        "RUN <<EOF cat\n"
        "FROM inside\n"
        "EOF\n"
        "run it's \\\n"
        "FROM x\n"
    )
    assert [(step.name, step.line) for step in parsed.instructions] == [
        ("ARG", 1), ("FROM", 2), ("RUN", 3), ("ENV", 8), ("COPY", 9), ("RUN", 10), ("RUN", 13),
    ]  # fmt: skip
    run, env, copy, here, last = parsed.stages[0].body
    assert run.rest == "a && b c"
    assert env.assignments == (("old", "form of it"),)
    assert copy.operands == ("a b", "c")
    assert here.documents == ("FROM inside",)
    assert last.rest == "it's FROM x"
    assert parsed.stages[0].name == "One"
    assert parsed.arguments == ("A",)


@given(st.one_of(st.text(), st.text("F\\#<\n\t OM")))
@example("\\")
@example("FROM a\n\\\n# b\n  \\")
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        parsed = dockerfile.parse(text)
    except DataError:
        return
    assert parsed.stages
    for step in parsed.instructions:
        assert 1 <= step.line <= len(text.splitlines())


@given(st.lists(st.sampled_from(GOOD.splitlines()), max_size=30))
def test_rules_answer_for_any_order_of_instructions(lines: list[str]) -> None:
    try:
        parsed = dockerfile.parse("\n".join(lines))
    except DataError:
        return
    last = len(lines)
    for rule in lint_rules.RULES.values():
        assert all(1 <= line <= last for line, _ in rule(Subject(parsed, (None,))))


def test_hadolint_is_the_packages_own_program() -> None:
    assert linting.HADOLINT.is_file(), shutil.which("hadolint")
