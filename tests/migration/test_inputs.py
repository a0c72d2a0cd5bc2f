"""Files as people have them: every way to indent, to end lines and to encode; newer, older and broken Python.

Each kind goes through the whole cut, and what comes out runs as what went in.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from migration.cli import main
from migration.code.source import Source
from migration.errors import CATALOGUE, MigrationError
from migration.move.cut import CutPlan, plan_cut

from .support import RECIPE, DictTree, planned, tree_of
from .test_property import loaded

HEAD = """\
import json

MARK = "caf\N{LATIN SMALL LETTER E WITH ACUTE}"


class Worker:
\tdef __init__(self):
\t\tself.name = "n\N{LATIN SMALL LETTER AE}me"
\t\tself.rows = [1, 2]

\t# ============ Cache ============

"""
SECTION = '''\
\t# \N{LATIN SMALL LETTER U WITH DIAERESIS}ber
\tdef text(self, times=2, *, end="\N{LATIN SMALL LETTER SHARP S}"):
\t\t"""Two lines,
\t\tthe second indented.
\t\t"""
\t\tif times:
\t\t\tbody = """first
\t\tsecond \N{LATIN SMALL LETTER O WITH DIAERESIS}
\t"""
\t\telse:
\t\t\tbody = ""

\t\treturn json.dumps([body * times,
\t\t                   self.name,  # aligned
\t\t\tend, MARK])

\tdef shown(self):
\t\trows = self.rows
\t\tlabel = "\N{LATIN SMALL LETTER A WITH DIAERESIS}" f"""{self.name} {
\t\t\tself.rows[0]:>{self.rows[1]}}
\t\t{f'{self.name!r}'}""" \\
\t\t\tf"{rows}"
\t\tdef inner(more):
\t\t\t# \N{LATIN SMALL LETTER I WITH DIAERESIS}nside
\t\t\treturn [self.text(1), more]
\t\treturn label, inner(rows)

'''
TAIL = """\
\t# ============ Rest ============

\tdef rest(self):
\t\treturn "\N{LATIN SMALL LETTER ETH}", json.loads("1"), self.text(times=0), self.shown()
\t\t# the end
"""
TEXT = HEAD + SECTION + TAIL


def report(files: dict[str, bytes]) -> tuple[object, ...]:
    with loaded(files) as module:
        worker = module.Worker()
        return worker.text(), worker.text(3, end="x"), worker.shown(), worker.rest(), module.MARK


def same(worker: bytes) -> CutPlan:
    """The cut of this worker, after checking that both results run as it does and the rest kept its bytes."""
    plan = planned(worker)
    after = {change.path: change.after for change in plan.changes}
    assert report(after) == report({RECIPE.source_file: worker})
    changed = next(change for change in plan.changes if change.path == RECIPE.source_file)
    assert changed.before == worker
    head, found, below = worker.partition(b"# ============ Cache")
    assert found and changed.after.endswith(below[below.index(b"# ============ Rest") :])
    imported = re.search(rb"from app\.parts\.cache import CacheManager(?:\r\n|\r|\n)", changed.after)
    assert imported
    assert (changed.after[: imported.start()] + changed.after[imported.end() :]).startswith(head)
    return plan


def handler(plan: CutPlan) -> bytes:
    return next(change.after for change in plan.changes if change.path == RECIPE.target_file)


def cut_worker(plan: CutPlan) -> bytes:
    return plan.changes[-1].after


# Indentation and line ends.


@pytest.mark.parametrize("indent", ["\t", " ", "  ", "    ", "        ", " \t"], ids=repr)
def test_any_indentation(indent: str):
    plan = same(TEXT.replace("\t", indent).encode())
    assert b"\n    def shown(self):\n" in handler(plan)


def test_tabs_and_spaces_in_one_file():
    """Python takes each block as it comes: the section has tabs, the rest has spaces."""
    spaced = HEAD.replace("\t", "    ").rstrip(" "), SECTION.replace("\t", "    "), TAIL.replace("\t", "    ")
    same("".join((spaced[0], spaced[1].replace("        ", "    \t"), spaced[2])).encode())


@pytest.mark.parametrize("end", ["\r\n", "\r"], ids=repr)
def test_line_ends_are_kept(end: str):
    plan = same(TEXT.replace("\n", end).encode())
    for change in plan.changes:
        if change.path in (RECIPE.source_file, RECIPE.target_file):
            assert b"\n" not in change.after.replace(end.encode(), b""), change.path


@pytest.mark.parametrize("seed", range(6))
def test_mixed_line_ends(seed: int):
    """Untouched lines keep theirs; what is written gets the end that most lines have."""
    draw = random.Random(seed)
    ends = draw.choice([["\n", "\r\n"], ["\n", "\r\n", "\r"], ["\n", "\n", "\n", "\r"]])
    worker = "".join(line + draw.choice(ends) for line in TEXT.split("\n")[:-1]).encode()
    plan = same(worker)
    used = Source(RECIPE.source_file, worker).eol
    moved = handler(plan)
    assert moved.count(used) == len(moved.splitlines())


def test_a_line_end_inside_a_string_is_no_data():
    """The parser turns every line end inside a string into a newline, whichever the file has."""
    body = '\tdef text(self):\n\t\treturn """a\n\tb"""\n\n\tdef shown(self): pass\n\n'
    text = (HEAD + body + TAIL).replace("a\n\tb", "a\r\n\tb")
    plan = same_text(text)
    assert b'"""a\n\tb"""' in handler(plan)


def same_text(text: str) -> CutPlan:
    worker = text.encode()
    plan = planned(worker)
    for files in ({RECIPE.source_file: worker}, {change.path: change.after for change in plan.changes}):
        with loaded(files) as module:
            assert module.Worker().text() == "a\n\tb"
    return plan


def test_no_final_newline():
    short = (HEAD + SECTION).rstrip("\n").encode()
    plan = planned(short)
    assert not cut_worker(plan).endswith(b"\n") and handler(plan).endswith(b"\n")
    with loaded({change.path: change.after for change in plan.changes}) as module:
        after = module.Worker().shown()
    with loaded({RECIPE.source_file: short}) as module:
        assert after == module.Worker().shown()


# Form feeds.


@pytest.mark.parametrize(
    "place",
    [
        lambda text: text.replace("\n\tdef ", "\n\f\n\tdef "),
        lambda text: text.replace("\n\tdef ", "\n\f\tdef "),
        lambda text: (
            text.replace("\n\t\t", "\n\f\t\t").replace("\f\t\tthe", "\t\tthe").replace("\f\t\tsec", "\t\tsec")
        ),
        lambda text: text.replace("\n\t\treturn", "\n  \f\t\treturn"),
        lambda text: text.replace("\n\t#", "\n\f\t#"),
        lambda text: text.replace("\tif times:\n", "\tif times:\n\f\n"),
        lambda text: text.replace("self.rows[1]", "self\f.\frows[1]"),
        lambda text: "\f" + text,
        lambda text: text.replace("class", "\fclass"),
    ],
    ids=[
        "between",
        "before def",
        "every line",
        "after spaces",
        "comment",
        "inside",
        "in code",
        "first",
        "class",
    ],
)
def test_form_feeds(place: Callable[[str], str]):
    """Python takes a form feed in the indentation as the start of the line."""
    text = place(TEXT)
    assert text != TEXT
    same(text.encode())


# Encodings.


@pytest.mark.parametrize(
    ("coding", "line"),
    [
        ("latin-1", "# -*- coding: latin-1 -*-"),
        ("iso-8859-15", "# vim: set fileencoding=iso-8859-15 :"),
        ("cp1252", "#!/usr/bin/env python\n# coding=cp1252"),
        ("latin-1", "# \N{LATIN SMALL LETTER E WITH ACUTE}\n#coding:latin-1-unix"),
        ("utf-8", "# -*- coding: utf-8-sig -*-"),
        ("utf-8", "# coding: utf8"),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=repr)
def test_coding_lines(coding: str, line: str, end: str):
    """The file stays in its encoding, its coding line with it; the handler is UTF-8."""
    text = f"{line}\n{TEXT}".replace("\n", end)
    plan = same(text.encode(coding))
    assert "\N{LATIN SMALL LETTER SHARP S}" in cut_worker(plan).decode(coding)
    assert "\N{LATIN SMALL LETTER SHARP S}" in handler(plan).decode("utf-8")


def test_multibyte_encoding_whose_bytes_look_like_quotes():
    """In Shift JIS the second byte of a character may be a backslash."""
    text = re.sub("[^\x00-\x7f]", "\N{CJK UNIFIED IDEOGRAPH-8868}", TEXT)
    worker = f"# coding: shift_jis\n{text}".encode("shift_jis")
    assert b"\x95\\" in worker
    same(worker)


def test_byte_order_mark():
    plan = same(b"\xef\xbb\xbf" + TEXT.encode())
    assert cut_worker(plan).startswith(b"\xef\xbb\xbf") and not handler(plan).startswith(b"\xef\xbb\xbf")


def test_a_name_that_the_encoding_lacks_is_refused():
    source = Source("app/worker.py", b"# coding: ascii\nx = 1\n")
    with pytest.raises(MigrationError, match=r"app/worker.py:2: '\u0142' does not exist in ascii") as error:
        source.restore(source.data.replace(b"x", "\u0142".encode()))
    assert error.value.code == "MG302"


@pytest.mark.parametrize(
    "top",
    [
        "#!/usr/bin/env python\n",
        "#!/usr/bin/env python\n# coding: latin-1\n",
        "# coding: latin-1\n",
        "# Licence\n# of two lines\n\n",
    ],
)
def test_the_import_goes_below_what_must_stay_on_top(top: str):
    text = TEXT.replace("import json\n\nMARK", "MARK").replace("json.loads", "int").replace("json.dumps", "")
    worker = (top + text).encode("latin-1" if "latin" in top else "utf-8")
    plan = same(worker)
    assert cut_worker(plan).startswith(top.rstrip("\n").encode() + b"\nfrom app.parts.cache import")


def test_deeply_nested_code_moves():
    """A dispatcher, a chain of calls and a long sum: each a tree of some thousand levels."""
    deep = 1 if sys.version_info[:2] == (3, 12) else 7  # 3.12 has little room for recursion in C
    branches = "".join(f"\t\telif x == {i}:\n\t\t\treturn self.name * {i}\n" for i in range(deep * 100))
    body = (
        f"\tdef text(self, x=3):\n\t\tif x == -1:\n\t\t\tpass\n{branches}\n"
        f"\tdef shown(self):\n\t\treturn {' + '.join(['self.name'] * deep * 130)}\n\n"
        f"\tdef chain(self):\n\t\treturn self.name{'.strip()' * deep * 60}\n\n"
    )
    limit = sys.getrecursionlimit()
    worker = (HEAD + body + TAIL).encode()
    plan = planned(worker)
    assert sys.getrecursionlimit() == limit
    for files in ({RECIPE.source_file: worker}, {change.path: change.after for change in plan.changes}):
        with loaded(files) as module:
            one = module.Worker()
            assert (one.text(), one.shown(), one.chain()) == (one.name * 3, one.name * deep * 130, one.name)


def test_code_too_deep_to_follow_is_refused_with_its_line():
    worker = (HEAD + f"\tdef text(self):\n\t\treturn {'+'.join(['self.name'] * 9000)}\n\n" + TAIL).encode()
    with pytest.raises(MigrationError, match=r"worker\.py") as error:
        planned(worker)
    assert error.value.code == "MG317"
    if sys.version_info < (3, 12):  # later parsers give up before there is a tree to look for the line in
        assert "app/worker.py:14: the statement nests 9005 levels deep" in str(error.value)


def test_a_long_file_and_a_long_line():
    """15,000 lines, one of them of a megabyte: planned in seconds."""
    rows = f"\t\trows = self.rows[: len('{'long ' * 200_000}')]\n"
    lines = "\t\tself.rows += [1, 2]  # more\n" * 18
    filler = "".join(f"\tdef filler{i}(self):\n{lines}\n" for i in range(750))
    text = HEAD + SECTION.replace("\t\trows = self.rows\n", rows) + TAIL + filler
    assert text.count("\n") > 15_000 and max(map(len, text.split("\n"))) > 1_000_000
    begun = time.process_time()
    same(text.encode())
    assert time.process_time() - begun < 30  # a pass that is not linear takes minutes


def test_a_folder_without_init_files():
    tree = DictTree({"app/worker.py": TEXT.encode()})
    outcome = plan_cut(RECIPE, tree)
    assert isinstance(outcome, CutPlan)
    assert [change.path for change in outcome.changes] == [RECIPE.target_file, RECIPE.source_file]


def test_files_beside_it_that_cannot_be_read_do_not_stop_a_cut():
    """They are looked through for replacements of moved methods; nothing can be learnt from these."""
    others = {
        "broken": b"Worker.text = (",
        "newer": b"lazy import text\nworker.text = 1\n",
        "deep": b"worker.text = " + b"not " * 20_000 + b"1\n",
        "long": b"text = " + b"+".join([b"1"] * 9_000) + b"\n",
        "null": b"text = '\0'\n",
        "latin": b"x = '\xe9'\nworker.text = 1\n",
        "two": b"print 'text'\n",
    }
    files = {f"app/{name}.py": data for name, data in others.items()}
    outcome = plan_cut(RECIPE, DictTree({RECIPE.source_file: TEXT.encode(), **files}))
    assert isinstance(outcome, CutPlan), outcome


def test_warnings_about_the_code_that_is_read_are_its_authors(tmp_path: Path):
    path = on_disk("two spaces", tmp_path)
    path.write_bytes(path.read_bytes().replace(b"if times:", b"if times is not 0:"))
    recipe = str(tmp_path / "cache.toml")
    line = [
        "-W",
        "default",
        "-c",
        "from migration.cli import main; main()",
        "port",
        recipe,
        "--cut",
        "--check",
    ]
    run = subprocess.run(
        [sys.executable, *line, "--root", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (1, "")


def test_inventory_of_deeply_nested_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    branches = "".join(f"        elif x == {i}: return {i}\n" for i in range(700))
    path = tmp_path / "deep.py"
    path.write_text(f"class A:\n    def f(self, x):\n        if x: pass\n{branches}", encoding="utf-8")
    with pytest.raises(SystemExit) as stop:
        main(["inventory", str(path)])
    assert stop.value.code == 0 and "703" in capsys.readouterr().out


# What cannot be read: one line that says where, what, and what to do.

NEWER = sys.version_info < (3, 12)
BEFORE_14 = sys.version_info < (3, 14)


@pytest.mark.parametrize(
    ("data", "code", "message"),
    [
        (b"x = 1\ny = '\xe9'\n", "MG302", ":2: byte 0xe9 is not UTF-8; add a coding line"),
        (b"# coding: utf-8\nx = '\xe9'\n", "MG302", ":2: byte 0xe9 is not UTF-8; save the file as UTF-8"),
        (b"# coding: ascii\n\ny = '\xe9'\n", "MG302", ":3: byte 0xe9 is not ascii; correct the coding line"),
        (b"#!x\n# coding: nothing\n", "MG302", ":2: coding nothing is none that Python reads"),
        (b"# coding: rot13\n", "MG302", ":1: coding rot13 is none that Python reads"),
        (b"# coding: utf-7\nx = '+AOk-'\n", "MG302", ":1: coding utf-7 does not give the same bytes back"),
        (
            b"\xef\xbb\xbf# coding: latin-1\n",
            "MG302",
            ":1: coding iso-8859-1, but the file begins with the mark",
        ),
        ("x = 1\n".encode("utf-16"), "MG302", ":1: UTF-16, which Python does not run; save it as UTF-8"),
        (b"x = 1\r\ny = '\0'\r\n", "MG301", ":2: a null byte"),
        (b"x = 1\ny = (\n", "MG301", ":2: '(' was never closed"),
        (b"x = 1\nif x:\n\ty\n        z\n", "MG301", ":4: inconsistent use of tabs and spaces"),
        (b"x = 1\n\nprint 'x'\n", "MG301", "it looks like Python 2; port the file"),
        (b"try: x\nexcept ValueError, e: y\n", "MG301", "it looks like Python 2"),
        (b"raise ValueError, 'x'\n", "MG301", "it looks like Python 2"),
        (b"if a <> b: pass\n", "MG301", "it looks like Python 2"),
        (b"mode = 0777\n", "MG301", "it looks like Python 2"),
        (b"x = ((" + b"(" * 300 + b"1" + b")" * 302, "MG317", ":1: too many nested parentheses; split"),
        (b"x = " + b"not " * 20_000 + b"1\n", "MG317", "it nests deeper than Python's own parser follows"),
        (b"", "MG102", "no module-level class Worker; it has none"),
        (b"# only\n# comments", "MG102", "no module-level class Worker; it has none"),
        (b"\n\f\n", "MG102", "no module-level class Worker; it has none"),
    ],
)
def test_unreadable_files_are_refused_in_one_line(data: bytes, code: str, message: str):
    with pytest.raises(MigrationError) as error:
        plan_cut(RECIPE, tree_of(data))
    text = str(error.value)
    assert message in text
    assert error.value.code == code and "\n" not in text and "app/worker.py" in text
    assert CATALOGUE[code].way_out


@pytest.mark.parametrize(
    ("code", "line", "construct", "version"),
    [
        ("type Pair = tuple[int, int]", 1, "the `type` statement", "3.12"),
        ("x = 1\ntype Pair[T] = tuple[T, T]", 2, "the `type` statement", "3.12"),
        ("class Box[T]: pass", 1, "a type parameter list", "3.12"),
        ("if 1:\n    async def first[T](x: T): pass", 2, "a type parameter list", "3.12"),
        ("def first[T = int](x: T): pass", 1, "a default of a type parameter", "3.13"),
        ("x = f'{d['a']}'", 1, "an f-string with quotes, ", "3.12"),
        ("x = 1\ny = f'{d[\"\\n\"]}'", 2, "an f-string with quotes, ", "3.12"),
        ("y = f'{a:{f'{b}'}}'", 1, "an f-string with quotes, ", "3.12"),
        ("x = f'{\n    a\n}'", 1, "an f-string with quotes, ", "3.12"),
        ("x = f'''\n{a}{b  # why\n}'''", 2, "an f-string with quotes, ", "3.12"),
        ("try: x\nexcept A, B: y", 2, "`except A, B:` without brackets", "3.14"),
        ("try: x\nexcept* a.b.A, a.B: y", 2, "`except A, B:` without brackets", "3.14"),
        ("x = t'{name}'", 1, "a t-string", "3.14"),
        ("lazy import json", 1, "a lazy import", "3.15"),
        ("x = [*row for row in rows]", 1, "unpacking in a comprehension", "3.15"),
    ],
)
def test_newer_syntax_names_the_python_that_reads_it(code: str, line: int, construct: str, version: str):
    if sys.version_info[:2] >= tuple(map(int, version.split("."))):
        pytest.skip(f"this Python reads {version}")
    with pytest.raises(MigrationError) as error:
        Source("app/worker.py", code.encode() + b"\n")
    text = str(error.value)
    assert error.value.code == "MG316", text
    assert text.startswith(f"app/worker.py:{line}: ") and "\n" not in text
    assert construct in text and text.endswith(f"run migrate under {version}")


@pytest.mark.parametrize("code", ["x = f'{a b}'", "x = f'{'", "type = = 1", "except A, B", "x = 1 +"])
def test_a_plain_mistake_is_not_taken_for_newer_syntax(code: str):
    with pytest.raises(MigrationError) as error:
        Source("app/worker.py", f"x = 1\n{code}\n".encode())
    assert error.value.code == "MG301" and str(error.value).startswith("app/worker.py:2: ")


# Through the commands: what lies on disk keeps its encoding, its line ends and its form feeds.

KINDS = {
    "latin-1": ("# coding: latin-1\n" + TEXT).encode("latin-1"),
    "latin-1, CRLF": ("# coding: latin-1\n" + TEXT).replace("\n", "\r\n").encode("latin-1"),
    "shift_jis": ("# coding: shift_jis\n" + re.sub("[^\x00-\x7f]", "\u8868", TEXT)).encode("shift_jis"),
    "mark, CRLF": b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode(),
    "CR": TEXT.replace("\n", "\r").encode(),
    "mixed": "".join(
        f"{line}{end}" for line, end in zip(TEXT.split("\n"), "\n\r\r" * 99, strict=False)
    ).encode(),
    "CRLF in places": re.sub("(e[^\n]*)\n", "\\1\r\n", TEXT).encode(),
    "form feeds": TEXT.replace("\n\tdef ", "\n\f\tdef ").replace("\n\n\t\tre", "\n\f\n \f\t\tre").encode(),
    "no final newline": TEXT.rstrip("\n").encode(),
    "two spaces": TEXT.replace("\t", "  ").encode(),
}


def on_disk(kind: str, folder: Path) -> Path:
    path = folder / RECIPE.source_file
    path.parent.mkdir(parents=True)
    (path.parent / "__init__.py").touch()
    path.write_bytes(KINDS[kind])
    (folder / "cache.toml").write_text(
        f'schema = 1\nname = "cache"\n\n[source]\nfile = "{RECIPE.source_file}"\nclass = "Worker"\n'
        f'section = "Cache"\n\n[target]\nfile = "{RECIPE.target_file}"\nclass = "CacheManager"\n\n'
        '[[handles]]\nname = "worker"\nprotocol = "WorkerView"\ndoc = "All."\nrest = true\n',
        encoding="utf-8",
    )
    return path


def migrate(folder: Path, *arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--root", str(folder)])
    assert isinstance(stop.value.code, int)
    return stop.value.code


def behaviour(folder: Path) -> tuple[object, ...]:
    paths = (RECIPE.source_file, RECIPE.target_file)
    return report({path: (folder / path).read_bytes() for path in paths if (folder / path).exists()})


@pytest.mark.parametrize("kind", KINDS)
def test_cut_verified_and_folded_back_gives_the_bytes_back(kind: str, tmp_path: Path):
    path = on_disk(kind, tmp_path)
    expected = behaviour(tmp_path)
    recipe = str(tmp_path / "cache.toml")
    assert migrate(tmp_path, "port", recipe, "--cut", "--check") == 1
    assert path.read_bytes() == KINDS[kind]
    assert migrate(tmp_path, "port", recipe, "--cut") == 0
    assert path.read_bytes() != KINDS[kind] and behaviour(tmp_path) == expected
    assert migrate(tmp_path, "port", recipe, "--cut") == 0
    assert migrate(tmp_path, "verify", "cache") == 0
    assert migrate(tmp_path, "inline", "cache") == 0
    assert path.read_bytes() == KINDS[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_the_three_phases_keep_the_behaviour(kind: str, tmp_path: Path):
    path = on_disk(kind, tmp_path)
    expected = behaviour(tmp_path)
    recipe = str(tmp_path / "cache.toml")
    assert migrate(tmp_path, "port", recipe) == 0
    assert path.read_bytes() == KINDS[kind]
    assert migrate(tmp_path, "gate", recipe) == 0
    assert path.read_bytes() != KINDS[kind] and behaviour(tmp_path) == expected
    assert migrate(tmp_path, "cleanup", recipe) == 0
    assert behaviour(tmp_path) == expected
    below = KINDS[kind].partition(b"Rest =")[2]
    assert path.read_bytes().endswith(below)
