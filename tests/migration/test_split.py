"""`split` as a whole: what is chosen, how it is written, which methods are refused, the command line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from migration.code.source import Source
from migration.errors import MigrationError
from migration.split.plan import SplitClean, SplitOptions, SplitPlan, SplitRefused, plan_split

from .split_support import OPTIONS, plan, planned, refused, worker
from .support import DictTree
from .test_cli import git, migrate

SECTIONS = """
# first, the head
c = a + 1
d = c * 2
e = d - a
f = e + d

# then the tail
g = f + b * a
h = g * g
i = h - g
return i + h
"""


def after(outcome: SplitPlan) -> str:
    assert outcome.change.after is not None
    return outcome.change.after.decode()


def test_a_method_within_the_budget_is_left_alone():
    outcome = plan(worker(SECTIONS), SplitOptions(budget=12))
    assert outcome == SplitClean("Worker", "run", 12)


def test_the_docstring_counts_for_nothing():
    text = '"""Long.\n\n' + "More.\n" * 30 + '"""\nreturn a'
    assert plan(worker(text), SplitOptions(budget=10)) == SplitClean("Worker", "run", 2)


def test_cuts_are_made_at_the_seams_with_the_fewest_names():
    outcome = planned(worker(SECTIONS), SplitOptions(budget=10))
    (helper,) = outcome.helpers
    assert (helper.name, helper.parameters, helper.results) == ("_run_1_first", ("a",), ("f",))
    assert (outcome.lines_before, outcome.lines_after) == (12, 8)
    assert "        f = self._run_1_first(a)\n\n        # then the tail\n" in after(outcome)


def test_the_cap_on_names_is_kept():
    body = "c, d, e = a, b, a\n" + "self.x = 1\n" * 6 + "self.y = c, d, e, a, b\n" + "self.z = c\n" * 4
    outcome = planned(worker(body), SplitOptions(budget=8, cap=3))
    assert all(len(h.parameters) + len(h.results) <= 3 for h in outcome.helpers)


def test_a_block_over_the_budget_is_cut_inside():
    inner = "".join(f"    self.x{n} = i + {n}\n" for n in range(12))
    outcome = planned(worker(f"for i in range(a):\n    if i == b:\n        break\n{inner}return a"))
    assert {helper.parameters for helper in outcome.helpers} == {("i",)}
    text = after(outcome)
    assert "                break\n" in text[: text.index("def _run_1")], "the jump stays"


def test_a_piece_over_the_budget_is_cut_again_and_its_helper_calls_the_next():
    inner = "".join(f"        self.x{n} = i + {n}\n" for n in range(8))
    body = (
        "if a:\n    self.y = 1\n    self.z = 2\n    for i in range(b):\n" + inner + "    self.w = b\nreturn a"
    )
    outcome = planned(worker(body))
    text = after(outcome)
    assert outcome.lines_after <= 10 and max(helper.lines for helper in outcome.helpers) <= 10
    assert all(text.count(helper.name) == 2 for helper in outcome.helpers)


def test_numbers_go_on_from_the_helpers_of_an_earlier_split():
    first = planned(worker(SECTIONS), SplitOptions(budget=10))
    assert first.change.after is not None
    again = planned(first.change.after, SplitOptions(budget=7))
    assert [helper.name.split("_")[2] for helper in first.helpers + again.helpers] == ["1", "2"]


@pytest.mark.parametrize(
    ("comment", "name"),
    [
        ("# ===== Collect the pages =====", "_run_1_collect_pages"),
        ("# TODO(me): free what is left, then go on", "_run_1_todo"),
        ("# Größe berechnen", "_run_1_gr_e_berechnen"),
        ("# -----\n# and the second line says it", "_run_1_second_line_says"),
        ("# class", "_run_1_class"),
        ("# ???", "_run_1_c_d"),
        ("", "_run_1_c_d"),
    ],
)
def test_the_comment_above_a_run_names_its_helper(comment: str, name: str):
    body = f"self.z = 0\n{comment}\nc = a\nd = b\nself.x = 1\nself.y = 2\nself.w = 3\n\nself.v = c, d\nreturn d\n"
    (helper,) = planned(worker(body), SplitOptions(budget=9 if comment else 8)).helpers
    assert helper.name == name


def test_a_prefix_given_names_the_helpers():
    (helper,) = planned(worker(SECTIONS), SplitOptions(budget=10, prefix="_piece")).helpers
    assert helper.name == "_piece_1_first"


def test_a_name_that_python_mangles_gives_helpers_that_it_does_not():
    data = worker(SECTIONS, definition="def __init__").replace(b"return i + h", b"self.x = i + h")
    (helper,) = planned(data, SplitOptions(budget=10), "__init__").helpers
    assert helper.name == "_init_1_first"


def test_annotations_of_parameters_go_along_while_they_hold():
    body = "# head\n" + "self.x = a + b\n" * 8 + "\n# tail\nb = self.x\nself.y = b\n"
    text = after(planned(worker(body, "self, a: int, b: 'float'"), SplitOptions(budget=10)))
    assert "_run_1_head(self, a: int, b) -> None:" in text, "b is bound again"
    body = SECTIONS.replace("f = e + d", "self.f = e").replace("f + b", "b")
    text = after(planned(worker(body, "self, a: list[int], b"), SplitOptions(budget=10)))
    assert "_run_1_first(self, a: list[int]) -> None:" in text


def test_an_annotation_that_the_method_itself_hides_is_left_out():
    data = worker(SECTIONS, "self, a: list[int], b: 'x'", definition="def list")
    assert "_list_1_first(self, a)" in after(planned(data, SplitOptions(budget=10), "list"))
    assert "_run_1_first(self, a: list[int])" in after(
        planned(data.replace(b"def list", b"def run"), SplitOptions(budget=10))
    )


def test_long_lists_of_names_are_wrapped():
    names = [f"a_rather_long_name_{n}" for n in range(6)]
    body = "".join(f"{name} = a\n" for name in names) + "self.x = 1\n" * 3 + "\n"
    body += f"self.y = {' + '.join(names[:3])}\nself.z = {' + '.join(names[3:])}\nself.w = a\n" * 2
    outcome = planned(worker(body), SplitOptions(budget=14, cap=20))
    assert all(len(line) <= 110 for line in after(outcome).splitlines())
    again = Source("app/worker.py", outcome.change.after or b"")
    assert isinstance(plan_split(again, "run", "Worker", SplitOptions(budget=14)), SplitClean)


def test_a_class_method_calls_class_methods():
    data = worker(SECTIONS, "cls, a, b").replace(b"    def run", b"    @classmethod\n    def run")
    text = after(planned(data, SplitOptions(budget=10)))
    assert "f = cls._run_1_first(a)" in text
    assert "    @classmethod\n    def _run_1_first(cls, a):" in text


def test_a_conditional_definition_keeps_its_helpers_under_the_condition():
    lines = worker(SECTIONS).decode().splitlines()
    start = next(n for n, line in enumerate(lines) if "def run" in line)
    lines[start:] = ["    if True:", *("    " + line if line else "" for line in lines[start:])]
    text = after(planned("\n".join(lines).encode(), SplitOptions(budget=10)))
    assert "        def _run_1_first(self, a):" in text


def test_the_last_method_of_a_file_without_a_final_newline_keeps_it_so():
    data = worker(SECTIONS).rstrip(b"\n")
    text = after(planned(data, SplitOptions(budget=10)))
    assert not text.endswith("\n")
    assert after(planned(data + b"\n", SplitOptions(budget=10))) == text + "\n"


@pytest.mark.parametrize("head", [b"\xef\xbb\xbf", b"# -*- coding: latin-1 -*-\n# \xe4\n", b"\x0c\n"])
def test_a_mark_a_coding_line_and_a_form_feed_stay(head: bytes):
    data = head + worker(SECTIONS)
    source = Source("app/worker.py", data)
    outcome = plan_split(source, "run", "Worker", SplitOptions(budget=10))
    assert isinstance(outcome, SplitPlan) and outcome.change.after is not None
    result = source.restore(outcome.change.after)
    assert result.startswith(head) and b"_run_1_first" in result


def test_lone_carriage_returns_end_lines_as_well():
    data = worker(SECTIONS).replace(b"\n", b"\r")
    result = after(planned(data, SplitOptions(budget=10)))
    assert "\n" not in result
    assert result.replace("\r", "\n") == after(planned(worker(SECTIONS), SplitOptions(budget=10)))


def test_a_name_that_would_be_unused_on_one_side_moves_the_cut():
    """`c = 0` alone would be an unused local once its only reader has gone to a helper that binds it anew."""
    body = """
    c = 0
    self.x = 1
    self.y = 2
    self.z = 3

    # the block
    c = a + 1
    self.u = c
    self.v = c * 2
    self.w = c * 3
    self.t = c * 4
    """
    outcome = plan(worker(body), SplitOptions(budget=9))
    assert isinstance(outcome, SplitPlan)
    assert [h for h in outcome.helpers if "c" in h.parameters or h.first_line < 6]


REFUSED = {
    "static": ("MG503", worker(SECTIONS, "a, b").replace(b"    def run", b"    @staticmethod\n    def run")),
    "no parameter": ("MG503", worker(SECTIONS, "*args, a=1, b=2")),
    "a class by its name": ("MG503", worker(SECTIONS, "cls, a, b")),
    "compiled": (
        "MG505",
        worker(SECTIONS).replace(b"    def run", b"    @numba.njit(cache=True)\n    def run"),
    ),
    "self again": ("MG506", worker("self = a\n" + SECTIONS)),
    "self in a loop": ("MG506", worker("for self.x, self in []: pass\n" + SECTIONS)),
    "self as a class": ("MG506", worker("class self: pass\n" + SECTIONS)),
    "a protocol": ("MG507", worker(SECTIONS).replace(b"class Worker:", b"class Worker(typing.Protocol[T]):")),
    "attributes watched": (
        "MG507",
        worker(SECTIONS).replace(b"Worker:\n", b"Worker:\n    def __getattribute__(self, name): return 1\n"),
    ),
    "twice": ("MG502", worker(SECTIONS) + worker(SECTIONS).partition(b"class Worker:\n")[2]),
    "called on a fake": ("MG520", worker(SECTIONS) + b"Worker.run(fake, 1, 2)\n"),
    "bound to a fake": ("MG520", worker(SECTIONS) + b"x = types.MethodType(Worker.run, fake)\n"),
    "borrowed": ("MG520", worker(SECTIONS) + b"class Other:\n    run = Worker.run\n"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_methods_that_cannot_be_split(name: str):
    code, data = REFUSED[name]
    outcome = refused(data)
    assert code in {refusal.code for refusal in outcome.refusals}
    assert all(refusal.line and refusal.way_out for refusal in outcome.refusals)


@pytest.mark.parametrize(
    "use",
    [
        "Worker.run(self, 1, 2)",
        "print(inspect.signature(Worker.run))",
        "class Sub(Worker):\n    go = Worker.run\n",
        "original = Worker.run\nWorker.run = original",
        "class Meta(type):\n    pass",
    ],
)
def test_uses_of_the_method_on_its_own_objects_are_no_reason(use: str):
    assert isinstance(plan(worker(SECTIONS) + use.encode() + b"\n"), SplitPlan)


def test_a_fake_in_another_file_is_found():
    tree = DictTree(
        {
            "app/worker.py": worker(SECTIONS),
            "tests/test_it.py": b"def test():\n    w.Worker.run(Fake(), 1, 2)\n",
            "x.py": b"Worker.run(\n",
        }
    )
    outcome = plan_split(Source("app/worker.py", worker(SECTIONS)), "run", "Worker", OPTIONS, tree)
    assert isinstance(outcome, SplitRefused)
    (refusal,) = outcome.refusals
    assert refusal.code == "MG520" and refusal.message.startswith("tests/test_it.py:2 ")


def test_a_definition_within_the_budget_beside_a_long_one_is_no_reason():
    short = b"    @property\n    def run(self): return 1\n    @run.setter\n"
    data = worker(SECTIONS).replace(b"    def run", short + b"    def run")
    text = after(planned(data, SplitOptions(budget=10)))
    assert text.index("_run_1_first") > text.index("@run.setter")


THING = "@contextmanager\ndef thing(x):\n"


@pytest.mark.parametrize(
    ("manager", "head", "splits"),
    [
        ("open(a)", "", True),
        ("self.lock", "", True),
        ("torch.no_grad()", "", True),
        ("no_grad()", "from torch import no_grad", True),
        ("no_grad()", "", False),
        ("suppress(ValueError)", "from contextlib import suppress", False),
        ("thing(a)", "", False),
        ("thing(a)", "@contextmanager\ndef thing(x):\n    yield x\n", True),
        (
            "thing(a)",
            "@contextmanager\ndef thing(x):\n    try:\n        yield x\n    finally:\n        done()\n",
            True,
        ),
        (
            "thing(a)",
            "@contextmanager\ndef thing(x):\n    try:\n        yield x\n    except OSError:\n        pass\n",
            False,
        ),
        ("thing(a)", "@contextmanager\ndef thing(x):\n    with other(): yield x\n", False),
        ("thing(a)", "def thing(x):\n    return other(x)\n", False),
        ("thing(a)", "class thing:\n    def __exit__(self, *_): self.done = 1\n", True),
        ("thing(a)", "class thing:\n    def __exit__(self, *_): return self.quiet\n", False),
        ("thing(a)", "class thing(Base): pass\n", False),
        (
            "thing(a)",
            "if x:\n    @contextmanager\n    def thing(x): yield x\nelse:\n    thing = other\n",
            False,
        ),
        ("thing(a)", "from lib.part import thing\n", True),
        ("thing(a)", "from lib.part import loose as thing\n", False),
        ("self.vouched()", "", True),
        ("a if b else c", "", False),
    ],
)
def test_a_name_bound_under_with_is_needed_below_only_if_exceptions_come_out(
    manager: str, head: str, splits: bool
):
    inner = "".join(f"    t = x{n} = t + {n}\n" for n in range(8))
    body = f"t = 0\nwith {manager}:\n{inner}    c = t\nreturn c + t"
    tree = DictTree(
        {
            "lib/part.py": b"@contextmanager\ndef thing(x):\n    yield x\n\nloose = thing\n",
            "app/worker.py": b"",
        }
    )
    source = Source("app/worker.py", worker(body, head=head))
    outcome = plan_split(source, "run", "Worker", SplitOptions(budget=10, propagates=("vouched",)), tree)
    assert isinstance(outcome, SplitPlan if splits else SplitRefused), outcome
    if not splits and manager == "thing(a)":
        assert (
            isinstance(outcome, SplitRefused) and "as far as is known: thing" in outcome.refusals[0].message
        )


@pytest.mark.parametrize(
    ("method", "owner", "code"),
    [("gone", None, "MG501"), ("run", "Nobody", "MG102"), ("other", None, "MG501")],
)
def test_what_is_not_there_is_an_error_with_a_hint(method: str, owner: str | None, code: str):
    data = worker(SECTIONS) + b"class Second:\n    def other(self): pass\n"
    with pytest.raises(MigrationError) as raised:
        plan_split(Source("w.py", data), method, owner)
    assert raised.value.code == code
    assert ("it is in Second: pass --class" in str(raised.value)) == (method == "other")


def test_a_refusal_is_the_same_whatever_the_names_of_the_file():
    outcome = refused(
        worker("if a:\n    c = 1\n" + "self.x = 1\nif b: self.y = c\n" * 6), SplitOptions(budget=10)
    )
    assert outcome.refusals[0].code == "MG508" and outcome.reachable == 15
    assert {refusal.code for refusal in outcome.refusals[1:]} <= {"MG511"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "app").mkdir(parents=True)
    (folder / "app" / "worker.py").write_bytes(worker(SECTIONS))
    return folder


def test_the_command_writes_once_and_a_second_run_does_nothing(tree: Path):
    run = migrate("split", "app/worker.py", "run", "--repo", tree, "--budget", "10")
    assert run.returncode == 0, run.stderr
    assert "Worker.run in app/worker.py split: 12 lines become 8 and 1 helper" in run.stdout
    assert "  _run_1_first: 7 lines, from 4-8\n    takes a; gives f\n" in run.stdout
    written = (tree / "app" / "worker.py").read_bytes()
    assert b"self._run_1_first(a)" in written
    again = migrate("split", "app/worker.py", "run", "--repo", tree, "--budget", "10")
    assert (again.returncode, "nothing to do, 8 lines" in again.stdout) == (0, True)
    assert (tree / "app" / "worker.py").read_bytes() == written


def test_check_and_diff_write_nothing_and_git_applies_the_patch(tree: Path):
    arguments = ("split", "app/worker.py", "run", "--repo", tree, "--budget", "10")
    assert migrate(*arguments, "--check").returncode == 1
    shown = migrate(*arguments, "--diff")
    assert shown.returncode == 0 and (tree / "app" / "worker.py").read_bytes() == worker(SECTIONS)
    git(tree, "init", "-q")
    subprocess.run(["git", "-C", str(tree), "apply", "-"], input=shown.stdout, text=True, check=True)
    assert migrate(*arguments, "--check").returncode == 0


def test_undo_takes_a_split_back(tree: Path):
    assert migrate("split", "app/worker.py", "run", "--repo", tree, "--budget", "10").returncode == 0
    run = migrate("undo", "--repo", tree)
    assert run.returncode == 0, run.stderr + run.stdout
    assert (tree / "app" / "worker.py").read_bytes() == worker(SECTIONS)


def test_a_refused_split_exits_2_with_places_and_ways_out(tree: Path):
    (tree / "app" / "worker.py").write_bytes(worker(SECTIONS) + b"Worker.run(fake, 1, 2)\n")
    run = migrate("split", "app/worker.py", "run", "--repo", tree, "--budget", "10")
    assert run.returncode == 2
    assert "MG520 app/worker.py:15: " in run.stdout and "way out: call it on an instance" in run.stdout
    found = json.loads(
        migrate("split", "app/worker.py", "run", "--repo", tree, "--budget", "10", "--json").stdout
    )
    assert found["outcome"] == "refused" and found["refusals"][0]["code"] == "MG520"


def test_json_holds_helpers_proof_and_patch(tree: Path):
    run = migrate("split", "app/worker.py", "run", "--repo", tree, "--budget", "10", "--check", "--json")
    found = json.loads(run.stdout)
    assert (run.returncode, found["outcome"], found["lines_before"], found["lines_after"]) == (
        1,
        "planned",
        12,
        8,
    )
    (helper,) = found["helpers"]
    assert (helper["parameters"], helper["results"], helper["first_line"]) == (["a"], ["f"], 4)
    assert found["proof"]["helpers"] == 1 and found["diff"].startswith("diff --git a/app/worker.py")


def test_uncommitted_work_is_guarded(tree: Path):
    git(tree, "init", "-q")
    run = migrate("split", "app/worker.py", "run", "--repo", tree, "--budget", "10")
    assert run.returncode == 3 and "MG304" in run.stderr
    assert (tree / "app" / "worker.py").read_bytes() == worker(SECTIONS)
    arguments = ("split", "app/worker.py", "run", "--repo", tree, "--budget", "10", "--allow-dirty")
    assert migrate(*arguments).returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("--budget", "none"),
        ("--budget", "5"),
        ("--cap", "-1"),
        ("--name-prefix", "__x"),
        ("--name-prefix", "a-b"),
        ("--diff", "--check"),
    ],
)
def test_wrong_usage_exits_64(arguments: tuple[str, ...], tree: Path):
    run = migrate("split", "app/worker.py", "run", "--repo", tree, *arguments)
    assert run.returncode == 64 and "usage: migrate split" in run.stderr


@pytest.mark.parametrize(
    ("file", "method", "code"),
    [
        ("app/gone.py", "run", "MG303"),
        ("../outside.py", "run", "MG313"),
        ("app/worker.py", "gone", "MG501"),
    ],
)
def test_errors_exit_3_with_a_code(file: str, method: str, code: str, tree: Path):
    run = migrate("split", file, method, "--repo", tree)
    assert run.returncode == 3 and code in run.stderr and "way out:" in run.stderr
    assert "Traceback" not in run.stderr


def test_lines_of_a_string_keep_their_bytes_when_their_block_is_dedented():
    rows = "".join(f"    self.x{n} = i\n" for n in range(8))
    text = 'self.s = """one\n        two\n            three"""\n'
    data = worker(f"for i in range(a):\n    if i == b:\n        break\n{rows}    STRING\nreturn b")
    result = after(planned(data.replace(b"STRING\n", text.encode())))
    helper = result[result.index("def _run_1") :]
    assert text in helper


def test_the_branches_of_an_elif_are_looked_into_and_the_elif_itself_stays():
    branch = "".join(f"    self.x{n} = a\n" for n in range(6))
    result = after(planned(worker(f"if a == 1:\n{branch}elif a == 2:\n{branch}else:\n{branch}")))
    kept = result[: result.index("def _run_1")]
    assert kept.index("if a == 1:") < kept.index("elif a == 2:") < kept.index("else:")
    assert kept.count("self._run_") >= 2


def test_a_run_of_the_body_is_taken_before_one_inside_a_block_that_costs_as_much():
    lines = "".join(f"self.x{n} = a\n" for n in range(7))
    inner = "".join(f"    self.y{n} = a\n" for n in range(7))
    outcome = planned(worker(f"# plain\n{lines}\nif b:\n    # inner\n{inner}"), SplitOptions(budget=14))
    assert [helper.name for helper in outcome.helpers] == ["_run_1_plain"]
