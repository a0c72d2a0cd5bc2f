"""Where names stand inside f-strings, which fields show their own source, and where strings and comments are."""

from __future__ import annotations

import ast
import io
import sys
import time
import tokenize
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migration.code import literals
from migration.code.source import Source

QUOTES = ('"', "'", '"""', "'''")
NAMES = ("self", "alpha", "\N{LATIN SMALL LETTER E WITH ACUTE}1", "u\N{LATIN SMALL LETTER N WITH CARON}")


@st.composite
def expressions(draw: st.DrawFn, quotes: tuple[str, ...], lines: bool, depth: int = 0) -> str:
    """An expression that Python 3.11 takes in a field: without the quotes around it and backslashes."""

    def inner() -> str:
        return draw(expressions(quotes, lines, depth + 1))

    gap = draw(st.sampled_from(["", " ", "\t", "\n  ", "\r\n\t"] if lines else ["", " "]))
    name = draw(st.sampled_from(NAMES))
    kind = draw(st.integers(0, 9)) if depth < 3 else 0
    if kind <= 1:
        return draw(st.sampled_from([name, f"{name}.attribute", f"{name}.a.b"]))
    if kind == 2:
        return f"{inner()}{gap} + {inner()}"
    if kind == 3:
        return f"({gap}{inner()}, {inner()}{gap})"
    if kind == 4:
        return f"{name}({inner()},{gap} key={inner()}, **{name})"
    if kind == 5:
        return f"[{inner()} for {name} in {inner()} if {name} != {inner()}]"
    if kind == 6:
        return f"{name}[{inner()}:{gap}{inner()}]"
    if kind == 7:
        return f"(lambda self, *rest: {inner()})"
    if kind == 8 and quotes:
        return draw(strings(quotes, lines, depth + 1))
    if quotes:
        quote = quotes[0][0]
        return f"{name}[{quote}{draw(st.sampled_from(['x', '{no}', ' # no', '!=:}', '']))}{quote}]"
    return draw(st.sampled_from([f"{name} <= {name}", f"{name} == {name}", f"{name} if {name} else {name}"]))


@st.composite
def fields(draw: st.DrawFn, quotes: tuple[str, ...], lines: bool, depth: int, in_spec: bool = False) -> str:
    """A replacement field. One that shows its source is `{(shown, ...)=}`, and no other is like that."""
    expression = draw(expressions(quotes, lines, depth))
    before = draw(st.sampled_from(["", "", " ", "\t", "\n  "] if lines else ["", " "]))
    labelled = draw(st.integers(0, 4)) == 0
    text = f"{before}(shown, {expression})" if labelled else before + expression
    text += draw(st.sampled_from(["", " ", "\n"] if lines else ["", " "]))
    text += draw(st.sampled_from(["=", "= "])) if labelled else ""
    text += draw(st.sampled_from(["", "", "!r", "!s"]))
    if not in_spec and draw(st.booleans()):
        width = draw(fields(quotes, lines, depth, True)) if draw(st.booleans()) else ""
        text += f":{draw(st.sampled_from(['', '>', '=', '^1']))}{width}{draw(st.sampled_from(['', 'd']))}"
    return "{" + text + "}"


@st.composite
def strings(draw: st.DrawFn, quotes: tuple[str, ...], lines: bool, depth: int = 0) -> str:
    """An f-string in one of the quotes; the fields use the others."""
    quote = draw(st.sampled_from(quotes))
    others = tuple(other for other in quotes if other[0] != quote[0])
    long = len(quote) == 3 and (lines or depth == 0)
    raw = draw(st.booleans()) and draw(st.booleans())
    texts = ["text ", "{{", "}}", "{{self}}", "\N{LATIN SMALL LETTER E WITH ACUTE}", " # no", "\t", "self"]
    if depth == 0:
        texts += ["\\" + quote[0], "\\\\", "\\\n"] + ([] if raw else ["\\N{DIGIT ONE}", "\\x41"])
    if long:
        texts += ["\n", "\r\n\t", others[0][0] if others else " "]
    parts = draw(
        st.lists(st.one_of(fields(others, long, depth), st.sampled_from(texts)), min_size=1, max_size=4)
    )
    return draw(st.sampled_from(["fr", "Rf"] if raw else ["f", "F"])) + quote + "".join(parts) + quote


@st.composite
def modules(draw: st.DrawFn) -> bytes:
    """A statement with an implicit concatenation of f-strings and plain ones, anywhere on its line."""
    plain = [
        "'{plain}'",
        '"\N{LATIN SMALL LETTER E WITH ACUTE}"',
        "'''two\n {lines}'''",
        'rb"{"[:0].hex() + ""',
    ]
    parts = draw(st.lists(st.one_of(strings(QUOTES, False), st.sampled_from(plain)), min_size=1, max_size=3))
    gaps = [" ", "\n\t", '\n\t# comment {z} "quote\n  ', " \\\n "]
    joined = parts[0] + "".join(draw(st.sampled_from(gaps)) + part for part in parts[1:])
    mark = draw(st.sampled_from(["", "\ufeff"]))
    head = draw(st.sampled_from(["", "x = 1\r\n", "# \N{LATIN SMALL LETTER E WITH ACUTE}\n\f\n", "\f"]))
    start = draw(st.sampled_from(["", "\N{LATIN SMALL LETTER E WITH ACUTE} = ", "if 1:\n\t"]))
    return f"{mark}{head}{start}call(({joined}), self.after)\n".encode()


def parsed(data: bytes) -> Source | None:
    try:
        ast.parse(data)
    except (SyntaxError, ValueError):
        return None  # two strings that cannot be joined, or a bug of one Python release
    return Source("app/worker.py", data)


def text_of(source: Source, node: ast.expr) -> str:
    return source.segment(node).decode()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(modules())
def test_names_inside_fstrings_stand_where_their_positions_say(data: bytes):
    """And the fields that show their own source are found, and no others."""
    source = parsed(data)
    if source is None:
        return
    labelled: set[int] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name):
            assert text_of(source, node) == node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert text_of(source, node) == f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.keyword) and node.arg:
            start = source.offset(node.lineno, node.col_offset)
            assert source.data.startswith(f"{node.arg}=".encode(), start)
        elif isinstance(node, ast.FormattedValue):
            assert text_of(source, node)[0] + text_of(source, node)[-1] == "{}"
            if isinstance(node.value, ast.Tuple) and getattr(node.value.elts[0], "id", "") == "shown":
                labelled.add(id(node))
    found = source.labelled_fields(source.tree.body[-1])
    assert {id(node) for node in found} == labelled and len(found) == len(labelled)


def test_nested_fstrings_are_placed_exactly():
    """The parser of 3.11 is wrong here: it counts the inner string's lines and columns from its own start."""
    code = "x = 1\ny = f'''{x}\n  {f\"{self.a}  {self.b:{self.c}}\"}\n {self.d}'''\n"
    source = Source("x.py", code.encode())
    found = [n for n in ast.walk(source.tree) if isinstance(n, ast.Attribute)]
    assert sorted((n.attr, n.lineno, n.col_offset) for n in found) == [
        ("a", 3, 6),
        ("b", 3, 16),
        ("c", 3, 24),
        ("d", 4, 2),
    ]


@pytest.mark.parametrize(
    "code",
    [
        r'rf"\{self.x}"',
        r'rf"\\{self.x}"',
        r'rf"\"{self.x}"',
        r'fr"\N{self.x}"',
        r'f"\{self.x}"',
        r'f"\\{self.x}"',
        r'f"\N{LEFT CURLY BRACKET}{self.x}"',
        r'f"{{{self.x}}}"',
        r'f"""""{self.x}"""',
    ],
)
def test_backslashes_and_braces_before_a_field(code: str):
    source = Source("x.py", f"call(1,\n  {code})\n".encode())
    (field,) = (n for n in ast.walk(source.tree) if isinstance(n, ast.FormattedValue))
    assert (text_of(source, field), text_of(source, field.value)) == ("{self.x}", "self.x")
    assert source.labelled_fields(source.tree.body[0]) == ()


@pytest.mark.parametrize(
    ("code", "labels"),
    [
        ('f"{self.x=}"', ["self.x"]),
        ('f"{self.x = }{self.y}"', ["self.x"]),
        ('f"{self.x!r}{self.y=!r:>9}"', ["self.y"]),
        ('f"{self.x=:>{self.w=}}"', ["self.x", "self.w"]),
        ('f"self.x={self.x}"', []),
        ('f"{self.x:=>9}"', []),
        ('f"{self.x == self.y}{self.x<=self.y}{self.x!=1}"', []),
        ('f"{dict(x=self.y)}{(z:=self.x)}"', []),
        ("f\"{{self.x=}} {self.y['a=']}\"", []),
        ("f\"{f'{self.x=}'}\"", ["self.x"]),
        ('"{self.x=}" f"{self.y=}"', ["self.y"]),
        ('rf"\\{self.x=}"', ["self.x"]),
        ('f"\\N{EQUALS SIGN}{self.x}"', []),
    ],
)
def test_labels(code: str, labels: list[str]):
    source = parsed(f"call(1,\n  {code})\n".encode())
    if source is None:
        pytest.skip("this release of Python does not parse it")
    found = source.labelled_fields(source.tree.body[0])
    assert sorted(ast.unparse(n.value) for n in found if isinstance(n, ast.FormattedValue)) == sorted(labels)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="positions come from the parser")
def test_an_fstring_that_cannot_be_read_back_lends_its_names_no_place(monkeypatch: pytest.MonkeyPatch):
    """Whoever looks for `self` at the position of its node must not find it elsewhere."""

    def unreadable(*_: object) -> None:
        raise literals.Unreadable("as if")

    monkeypatch.setattr("migration.code.positions.read_literals", unreadable)
    source = Source("x.py", b'x = f"{self.x} {self.x}"\n')
    names = [n for n in ast.walk(source.tree) if isinstance(n, ast.Name) and n.id == "self"]
    assert names and all((n.lineno, n.col_offset) == (1, 4) for n in names)
    assert source.labelled_fields(source.tree.body[0])


# Strings, comments and logical lines, against the tokenizer of the standard library.


def agrees(data: bytes) -> None:
    source = Source("x.py", data)
    tokens = list(tokenize.tokenize(io.BytesIO(data).readline))
    inside: set[int] = set()
    opened: list[int] = []
    comments: list[tuple[int, str, bool]] = []
    for token in tokens:
        if token.type == getattr(tokenize, "FSTRING_START", -1):
            opened.append(token.start[0])
        elif token.type == getattr(tokenize, "FSTRING_END", -1):
            inside.update(range(opened.pop() + 1, token.end[0] + 1))
        elif token.type == tokenize.STRING:
            inside.update(range(token.start[0] + 1, token.end[0] + 1))
        elif token.type == tokenize.COMMENT and not opened:  # one in a field is part of its string
            comments.append((token.start[0], token.string, not token.line[: token.start[1]].strip()))
    assert [(c.line, c.text, c.own_line) for c in source.comments] == comments
    for comment in source.comments:
        assert source.data.startswith(comment.text.encode(), source.offset(comment.line, comment.column))
    assert source.string_lines == inside
    ends = [t.start[0] for t in tokens if t.type == tokenize.NEWLINE]
    found = [source.place(mark.start)[0] for mark in source.marks(1) if not mark.text]
    assert found == ends[: len(found)] and len(ends) - len(found) <= (not data.endswith(b"\n"))
    for statement in source.tree.body:
        if not hasattr(statement, "body"):
            assert source.logical_end(statement.lineno) >= (statement.end_lineno or 0)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(modules())
def test_strings_comments_and_lines_are_those_of_the_tokenizer(data: bytes):
    if parsed(data) is not None and b"\r" not in data.replace(b"\r\n", b""):
        agrees(data)


@pytest.mark.parametrize(
    "code",
    [
        "",
        "# only",
        "x = 1",
        "x = '#' # '\n",
        "x = '''\n# no\n''' # yes\n\n  # alone\ny = [ # in\n\n # alone in\n]\n",
        'x = "a\\\nb" \\\n  "#"\n',
        "x = r'\\' '#'\ny = rb'\\\\' # c\n",
        "if x:y=1 #c\nelif'a':pass\nx=1 if y else'#'\n",
        "x = ''''a'''\ny = ''\nz = ''''''\n",
        "def f(a: int = lambda: 0, # one\n  ) -> {1: 2}: # two\n\treturn {'a':\n 1} # three\n",
        "\f\nx = 1 # c\n\f  # d\n",
        "\ufeff# bom\nx = 1 # e\n",
        "f'{x!r:>{y}}' # c\nf'''{\nx}''' # d\n",
    ],
)
def test_layout_of_small_files(code: str):
    agrees(code.encode())


@pytest.mark.skipif(sys.version_info < (3, 12), reason="syntax of Python 3.12")
@pytest.mark.parametrize(
    "code",
    [
        'x = f"{a["b"]}" # c\n',
        'x = f"{\n a # in\n}" # c\n',
        "x = f'{f'{'#'}'}' # c\n",
        'f"{x:{y["z"]}}" # c\n',
    ],
)
def test_layout_of_fstrings_with_code_inside(code: str):
    agrees(code.encode())


@pytest.mark.parametrize(
    "code", ['f"{a["b"]}" # c', 'f"{\n a # in }\n}" # c', "f'{f'{'#'}'}' # c", 'f"{x:{y["z"]}}" # c']
)
def test_code_in_fields_is_no_comment_and_ends_no_string(code: str):
    """The reading of 3.12, on any Python."""
    data = code.encode()
    found = [(span.comment, data[span.start : span.end]) for span in literals.spans(data, nested=True)]
    assert found == [(False, data[1:-4]), (True, b"# c")]


@pytest.mark.parametrize("text", ["f'{a'", "f'{a}", "f'}'", "f'{a!r'", "f'{a:{b}'", "x", "f'{(}'"])
def test_what_is_no_literal_is_said_so(text: str):
    data = text.encode()
    with pytest.raises(literals.Unreadable):
        literals.read_literal(data, data.find(b"'") if b"'" in data else 0)


LIBRARY = [
    Path(ast.__file__).with_name(f"{name}.py")
    for name in (
        "argparse",
        "ast",
        "dataclasses",
        "difflib",
        "inspect",
        "pdb",
        "textwrap",
        "tokenize",
        "typing",
    )
]


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.name)
def test_layout_of_real_files(path: Path):
    agrees(path.read_bytes())


def test_tokens_from_a_line_on_are_those_of_the_file():
    source = Source(
        "x.py", "class A:\n    def f(self, x='é', # c\n          y=1): # d\n        pass\n".encode()
    )
    whole = [(t.string, t.start) for t in source.tokens if t.start[0] >= 2 and t.string.strip()]
    part = [(t.string, t.start) for t in source.tokens_from(2) if t.string.strip()]
    assert part == whole


def test_a_large_file_is_scanned_in_little_time():
    """Comments and strings of 7,000 lines: a tenth of what `tokenize` needs for them."""
    data = b"".join(path.read_bytes() for path in LIBRARY if path.stem in ("argparse", "inspect", "pdb"))
    source = Source("x.py", data)
    took = []
    for action in (lambda: (source.comments, source.string_lines), lambda: source.tokens):
        begun = time.process_time()
        action()
        took.append(time.process_time() - begun)
    assert took[0] < took[1] / 3, took
