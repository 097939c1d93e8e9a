"""Changes of test files that do nothing but take tests out, and those that look like it."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.pipelines.skip_marks import TOO_LARGE, is_test_file, why_not_only_skips

PATH = "tests/e2e/test_a.py"

OLD = """\
import sys

import pytest

pytestmark = [pytest.mark.core_model, pytest.mark.cpu]


@pytest.fixture
def thing():
    return 1


# about the first
@pytest.mark.parametrize("x", [1, 2])
def test_first(x):
    assert x


async def test_second(thing):
    assert thing


class TestMany:
    def test_third(self):
        assert sys

    def helper(self):
        return 1


def helper():
    return 1


class Helper:
    def test_no(self):
        pass
"""


def _only(old: str | None, new: str | None, path: str = PATH) -> bool:
    why = why_not_only_skips(path, None if old is None else old.encode(), None if new is None else new.encode())
    assert why is None or (why.startswith(path) and "\n" not in why)
    return why is None


def _with(*edits: tuple[str, str], old: str = OLD) -> str:
    for before, after in edits:
        assert old.count(before) == 1, before
        old = old.replace(before, after)
    return old


def _above(definition: str, decorator: str, old: str = OLD) -> str:
    """Put a decorator right above a definition, indented as it is."""
    (line,) = [line for line in old.splitlines() if line.strip().startswith(definition)]
    indent = line[: len(line) - len(line.lstrip())]
    return old.replace(line, textwrap.indent(decorator, indent) + "\n" + line)


SKIPS = [
    "@pytest.mark.skip",
    "@pytest.mark.skip()",
    '@pytest.mark.skip("broken")',
    '@pytest.mark.skip(reason="broken")',
    '@pytest.mark.skip(reason="a (" "b")',
    '@pytest.mark.skipif(sys.platform == "win32", reason="no")',
    '@pytest.mark.skipif(\n    sys.version_info < (3, 12),\n    reason="a three-line mark",\n)',
    '@pytest.mark.skipif(True, reason="no")',
    '@pytest.mark.skipif(condition=not hasattr(sys, "x"), reason="no")',
    '@pytest.mark.skipif(len(sys.argv) > 1, reason=f"not with {sys.argv}")',
]
TESTS = ["def test_first", "async def test_second", "class TestMany", "def test_third"]


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("mark", SKIPS)
def test_an_added_skip_mark(mark: str, test: str) -> None:
    new = _above(test, mark)
    assert _only(OLD, new)
    assert not _only(new, OLD)  # and taking it away again lets a test run
    assert not _only(new, new)


def test_an_added_skip_mark_above_other_decorators_with_comments_and_layout_around_it() -> None:
    new = _with(
        ("# about the first\n", "# about the first: broken, see the issue\n\n@pytest.mark.skip(reason='broken')\n"),
        ("def helper():", "# a helper\ndef helper():"),
        ("    assert thing\n", "    assert thing  # is there\n\n"),
    )
    assert _only(OLD, new)


@given(st.sets(st.sampled_from(TESTS), min_size=1), st.sampled_from(SKIPS))
def test_any_number_of_added_marks(tests: set[str], mark: str) -> None:
    new = OLD
    for test in sorted(tests):
        new = _above(test, mark, new)
    assert _only(OLD, new)
    assert not _only(new, OLD)
    assert not _only(OLD, new.replace("assert thing", "assert not thing"))


@pytest.mark.parametrize(
    "mark",
    [
        "@pytest.mark.xfail",
        '@pytest.mark.xfail(reason="broken")',
        "@pytest.mark.slow",
        "@pytest.mark.full_model",
        "@pytest.mark.rocm",
        "@pytest.mark.skipif",
        "@pytest.mark.skipif()",
        "@pytest.mark.skipif(True)",
        '@pytest.mark.skipif(reason="no condition")',
        "@pytest.mark.skipif(\"sys.platform == 'win32'\", reason='a text is evaluated elsewhere')",
        '@pytest.mark.skipif(True, False, reason="two")',
        '@pytest.mark.skipif(True, condition=False, reason="two")',
        '@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="a name that is not there")',
        '@pytest.mark.skipif(helper(), reason="a name that is not there yet")',
        '@pytest.mark.skipif((x := 1), reason="binds")',
        '@pytest.mark.skipif(open("x"), reason="does something")',
        '@pytest.mark.skipif(exec("x"), reason="does something")',
        "@pytest.mark.skipif(True, reason=1)",
        '@pytest.mark.skipif(True, **{"reason": "x"})',
        "@pytest.mark.skip(True)",
        '@pytest.mark.skip("a", reason="b")',
        '@pytest.mark.skip(cause="a")',
        "@pytest.mark.skip(*reasons)",
        "@pytest.mark.skip.now",
        "@pytest.mark.skipper",
        "@pytest.skip",
        '@pytest.skip("now")',
        "@mark.skip",
        "@pt.mark.skip",
        "@unittest.skip('x')",
        "@skip_broken",
        '@pytest.mark.skip(reason="a (")\n@pytest.mark.slow',
        '@pytest.mark.usefixtures("x")',
    ],
)
@pytest.mark.parametrize("test", TESTS)
def test_other_marks(mark: str, test: str) -> None:
    assert not _only(OLD, _above(test, mark))
    assert not _only(OLD, _above(test, f"@pytest.mark.skip\n{mark}"))


@pytest.mark.parametrize("what", ["def helper():", "class Helper", "def test_no", "def helper(self)", "def thing"])
def test_a_skip_mark_on_what_is_no_test(what: str) -> None:
    assert not _only(OLD, _above(what, "@pytest.mark.skip"))


@pytest.mark.parametrize(
    "edits",
    [
        [],
        [("# about the first\n", "")],
        [("# about the first\n", "# about another\n\n")],
        [("assert thing", "assert not thing")],
        [("def test_second", "def test_other")],
        [("def helper():\n    return 1", "def helper():\n    return 2")],
        [("[1, 2]", "[1, pytest.param(2, marks=pytest.mark.skip)]")],
        [("    assert thing", '    pytest.skip("no")\n    assert thing')],
        [("import sys\n", "import os\nimport sys\n")],
        [("pytest.mark.core_model", "pytest.mark.full_model")],
        [("pytest.mark.cpu", "pytest.mark.cuda")],
        [(", pytest.mark.cpu", "")],
        [("class Helper:\n    def test_no(self):\n        pass\n", "")],
        [("import pytest\n", "import pytest\n\nsys.exit(0)\n")],
        [("import pytest\n", 'import pytest\n\npytest.skip("all", allow_module_level=True)\n')],
    ],
)
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a skip mark"])
def test_other_changes(edits: list[tuple[str, str]], beside: bool) -> None:
    """A change of comments alone is no skip mark; beside one it is free, and every other change is not."""
    new = _with(*edits)
    comments_only = not edits or edits[0][0].startswith("#")
    assert _only(OLD, _above("class TestMany", "@pytest.mark.skip", new) if beside else new) is (
        beside and comments_only
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('@pytest.mark.skip(reason="a")', '@pytest.mark.skip(reason="b")'),
        ("@pytest.mark.skip", '@pytest.mark.skip(reason="b")'),
        ('@pytest.mark.skip(reason="a")', '@pytest.mark.skipif(True, reason="a")'),
        ('@pytest.mark.skipif(True, reason="a")', '@pytest.mark.skipif(False, reason="a")'),
        ("@pytest.mark.slow", "@pytest.mark.skip"),
        ("@pytest.mark.slow\n@pytest.mark.gpu", "@pytest.mark.gpu\n@pytest.mark.skip\n@pytest.mark.slow"),
    ],
)
def test_a_mark_that_was_changed(old: str, new: str) -> None:
    assert not _only(_above("def test_third", old), _above("def test_third", new))


@pytest.mark.parametrize(
    ("old", "new", "only"),
    [
        ("", "pytestmark = pytest.mark.skip\n", True),
        ("", 'pytestmark = pytest.mark.skip(reason="x")\n', True),
        ("", 'pytestmark = pytest.mark.skipif(sys.platform == "x", reason="x")\n', True),
        ("", 'pytestmark: list = [pytest.mark.skip("x")]\n', True),
        ("", "pytestmark = [pytest.mark.skip, pytest.mark.core_model]\n", False),
        ("", "pytestmark = pytest.mark.core_model\n", False),
        ("", "pytestmark = []\n", False),
        ("", "pytestmark = (pytest.mark.skip,)\n", False),
        ("", "pytestmark = other = pytest.mark.skip\n", False),
        ("", "pytestmark = pytest.mark.skip\npytestmark = []\n", False),
        ("", "if sys:\n    pytestmark = pytest.mark.skip\n", False),
        ("pytestmark = []\n", "pytestmark = [pytest.mark.skip]\n", True),
        ("pytestmark = pytest.mark.cpu\n", "pytestmark = [pytest.mark.cpu, pytest.mark.skip]\n", True),
        ("pytestmark = pytest.mark.cpu\n", "pytestmark = [pytest.mark.skip, pytest.mark.cpu]\n", True),
        (
            "pytestmark = [pytest.mark.cpu]\n",
            "pytestmark = [\n    pytest.mark.cpu,\n    pytest.mark.skip('x'),\n]\n",
            True,
        ),
        (
            "pytestmark = [pytest.mark.cpu]\n",
            "pytestmark = [pytest.mark.cpu]\npytestmark += [pytest.mark.skip]\n",
            False,
        ),
        ("pytestmark = [pytest.mark.cpu]\n", "pytestmark = [pytest.mark.cuda, pytest.mark.skip]\n", False),
        ("pytestmark = [pytest.mark.cpu]\n", "pytestmark = [pytest.mark.skip]\n", False),
        ("pytestmark = [pytest.mark.cpu]\n", "pytestmark = pytest.mark.skip\n", False),
        ("pytestmark = MARKS\n", "pytestmark = [MARKS, pytest.mark.skip]\n", False),
        ("pytestmark = [pytest.mark.cpu, pytest.mark.skip]\n", "pytestmark = [pytest.mark.cpu]\n", False),
        ("pytestmark = pytest.mark.skip\n", "", False),
    ],
)
@pytest.mark.parametrize("inside", ["", "class TestX:\n"], ids=["module", "class"])
def test_pytestmark(old: str, new: str, only: bool, inside: str) -> None:
    indent = "    " if inside else ""
    head = f"import sys\nimport pytest\n{inside}"
    tail = textwrap.indent("def test_a(self=None):\n    pass\n", indent)
    before, after = (head + textwrap.indent(text, indent) + tail for text in (old, new))
    assert _only(before, after) is only


@pytest.mark.parametrize(
    ("imports", "mark", "only"),
    [
        ("import pytest as pt", "pt.mark.skip", True),
        ("from pytest import mark", "mark.skip", True),
        ("from pytest import mark as m", 'm.skip(reason="x")', True),
        ("import os\nfrom pytest import fixture, mark", "mark.skip", True),
        ("import pytest\ndef f():\n    import pytest", "pytest.mark.skip", True),
        ("import pytest as pt", "pytest.mark.skip", False),
        ("from other import mark", "mark.skip", False),
        ("from .pytest import mark", "mark.skip", False),
        ("import other as pytest", "pytest.mark.skip", False),
        ("import pytest\nimport other as pytest", "pytest.mark.skip", False),
        ("import pytest\npytest = object()", "pytest.mark.skip", False),
        ("import pytest\npytest.mark.skip = print", "pytest.mark.skip", False),
        ("import pytest\nfrom helpers import *", "pytest.mark.skip", False),
        ("import pytest\ndef f(pytest):\n    pass", "pytest.mark.skip", False),
        ("import pytest\nfor pytest in []:\n    pass", "pytest.mark.skip", False),
        ("import pytest\ntry:\n    pass\nexcept E as pytest:\n    pass", "pytest.mark.skip", False),
        ("import pytest.mark", "pytest.mark.skip", False),
        ("from pytest import mark\nskip = mark.skip", "skip", False),
    ],
)
def test_names_of_the_marks(imports: str, mark: str, only: bool) -> None:
    old = f"{imports}\n\ndef test_a():\n    pass\n"
    assert _only(old, _with(("def test_a", f"@{mark}\ndef test_a"), old=old)) is only


def test_an_import_that_the_mark_needs_is_no_other_change() -> None:
    old = "import sys\n\n\ndef test_a():\n    pass\n"
    marked = "@{}.skip\ndef test_a():\n    pass\n"
    assert _only(old, "import sys\n\nimport pytest\n\n\n" + marked.format("pytest.mark"))
    assert _only(old, "import sys\n\nfrom pytest import mark\n\n\n" + marked.format("mark"))
    assert not _only(old, "import sys\n\nimport pytest, os\n\n\n" + marked.format("pytest.mark"))
    assert not _only(old, "import pytest\nimport sys\n\n\ndef test_a():\n    pass\n")
    assert not _only(old, "import sys\n\n" + marked.format("pytest.mark") + "import pytest\n")
    assert not _only(
        "from __future__ import annotations\n" + old, "import pytest\nfrom __future__ import annotations\n" + old
    )


@pytest.mark.parametrize(
    ("new", "only"),
    [
        ("import pytest\npytestmark = pytest.mark.skip\ndef test_a(): pass\n", True),
        ('from pytest import mark\npytestmark = [mark.cpu, mark.skip(reason="x")]\ndef test_a(): pass\n', True),
        ('import pytest, sys\npytestmark = pytest.mark.skipif(sys.x, reason="x")\n', False),
        ("import pytest\npytestmark = [pytest.mark.cpu]\n", False),
        ("import pytest\nif x:\n    pytestmark = pytest.mark.skip\n", False),
        ("import pytest\npytestmark = pytest.mark.skip\nfrom x import pytestmark\n", False),
        ("import pytest\npytestmark = pytest.mark.skip\nfrom x import *\n", False),
        ("import pytest\npytestmark = pytest.mark.skip\npytestmark = []\n", False),
        ("import pytest\npytestmark = pytest.mark.skip\ndel pytestmark\n", False),
        ("import pytest\npytestmark = pytest.mark.skip\ndef f():\n    global pytestmark\n    pytestmark = []\n", False),
        ("import pytest\n@pytest.mark.skip\ndef test_a(): pass\n", False),
        ('import pytest\npytest.skip("x", allow_module_level=True)\n', False),
        ("pytestmark = pytest.mark.skip\nimport pytest\n", False),
        ("import pytest\npytestmark = pytest.mark.skip\nreturn\n", False),
        ("import pytest\n# pytestmark = pytest.mark.skip\n'pytestmark = pytest.mark.skip'\n", False),
        ("", False),
    ],
)
def test_a_new_file(new: str, only: bool) -> None:
    assert _only(None, new) is only


@pytest.mark.parametrize(
    "broken",
    [
        b"def test_a(:\n",
        b"\xff\xfe",
        b"# -*- coding: nope -*-\n",
        b"a = '\x00'\n",
        b"a = " + b"(" * 5000 + b")" * 5000,
        b"a = " + b"-" * 100_000 + b"1",
        b"a" + b".a" * 100_000,
        b"a = " + b"9" * 100_000,
        b"x = 1\n" * (TOO_LARGE // 6 + 1),
        b"async = 1\n",
    ],
    ids=["syntax", "bytes", "coding", "nul", "parentheses", "operators", "attributes", "digits", "size", "keyword"],
)
def test_what_cannot_be_compared_runs(broken: bytes) -> None:
    good = b"import pytest\npytestmark = pytest.mark.skip\n"
    for old, new in ((good, broken), (broken, good), (broken, broken), (None, broken), (broken, good + broken)):
        why = why_not_only_skips(PATH, old, new)
        assert why is not None
        assert why.startswith(PATH)


@given(st.binary(max_size=60))
def test_any_bytes_run(data: bytes) -> None:
    assert why_not_only_skips(PATH, b"", data) is not None
    assert why_not_only_skips(PATH, data, b"") is not None


@pytest.mark.parametrize(
    ("path", "is_test"),
    [
        ("tests/test_a.py", True),
        ("tests/e2e/a_test.py", True),
        ("tests/conftest.py", False),
        ("tests/e2e/conftest.py", False),
        ("tests/helpers/mark.py", False),
        ("tests/test_a.pyi", False),
        ("tests/test_a.yaml", False),
        ("vllm_omni/test_a.py", False),
        ("vllm_omni/tests/test_a.py", False),
        ("test_a.py", False),
        ("tests", False),
        ("testsx/test_a.py", False),
    ],
)
def test_only_test_files_count(path: str, is_test: bool) -> None:
    assert is_test_file(path) is is_test
    assert _only(OLD, _above("def test_first", "@pytest.mark.skip"), path) is is_test


def test_a_deleted_file_is_no_skip() -> None:
    assert not _only(OLD, None)


def test_bytes_that_mean_the_same() -> None:
    new = _above("def test_first", "@pytest.mark.skip").encode()
    for old, newer in ((OLD.encode(), new.replace(b"\n", b"\r\n")), (b"\xef\xbb\xbf" + OLD.encode(), new)):
        assert why_not_only_skips(PATH, old, newer) is None


BASE = "import os\nimport pytest\nimport json\nV = [1]\ndef test_a():\n    json.dumps(V)\n"


@pytest.mark.parametrize(
    "condition",
    [
        "V.clear()",
        "os.environ.update({})",
        "json.__dict__.clear()",
        "os.system('x')",
        "os._exit(1)",
        "os.environ['NOPE'] == '1'",
        "V[5]",
        "1 / 0",
        "int('x')",
        "[x for x in V]",
        "V.append(1) or True",
    ],
)
def test_a_condition_that_does_something_or_may_fail_is_no_skip_mark(condition: str) -> None:
    mark = f"@pytest.mark.skipif({condition}, reason='r')\n"
    assert not _only(BASE, BASE.replace("def test_a", f"{mark}def test_a"))


@pytest.mark.parametrize("line", ["import pytest as json\n", "from pytest import mark as json\n"])
def test_an_import_that_takes_a_name_over_is_a_change(line: str) -> None:
    new = BASE.replace("def test_a", "@pytest.mark.skip\ndef test_a").replace("V = [1]\n", f"{line}V = [1]\n")
    assert not _only(BASE, new)


@pytest.mark.parametrize(
    "line",
    [
        "pytestmark.clear()",
        "pytestmark[:] = []",
        "del pytestmark[0]",
        "globals()['pytestmark'] = []",
        "raise SystemExit(1)",
        "pytest_plugins = ['x']",
        "os.x = 1",
        "class TestA:\n    os._exit(1)",
    ],
)
def test_a_new_file_that_does_more_than_define_is_not_skipped_whole(line: str) -> None:
    head = "import os\nimport pytest\npytestmark = [pytest.mark.skip]\n"
    assert _only(None, f"{head}def test_a(): pass\n")
    assert not _only(None, f"{head}{line}\ndef test_a(): pass\n")


def test_a_mark_on_a_fixture_is_no_skip_mark() -> None:
    old = "import pytest\n@pytest.fixture\ndef test_a(): pass\n"
    assert not _only(old, old.replace("@pytest.fixture", "@pytest.mark.skip\n@pytest.fixture"))
