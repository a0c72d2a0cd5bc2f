"""The proof looks at two files alone: every way in which a split could be wrong is planted and found."""

from __future__ import annotations

import pytest

from migration.code.source import Source
from migration.code.structure import outline
from migration.errors import Refusal
from migration.split.proof import SplitProof, prove

BEFORE = '''\
import os


class Worker:
    def run(self, a, b):
        """Doc."""
        # first
        c = a + 1
        d = c * b

        # second
        total = [d]
        for x in range(c):
            total.append(os.path.join(str(x), str(d)))
        return total

    def other(self):
        return 1
'''
AFTER = '''\
import os


class Worker:
    def run(self, a, b):
        """Doc."""
        c, d = self._run_1_first(a, b)

        return self._run_2_second(c, d)

    def _run_1_first(self, a, b):
        # first
        c = a + 1
        d = c * b
        return c, d

    def _run_2_second(self, c, d):
        # second
        total = [d]
        for x in range(c):
            total.append(os.path.join(str(x), str(d)))
        return total

    def other(self):
        return 1
'''


def proved(after: str, before: str = BEFORE) -> SplitProof | tuple[Refusal, ...]:
    source = Source("worker.py", before.encode())
    shape = outline(source, "Worker")
    method = shape.definitions("run")[0]
    start = source.offset(method.first_line)
    end = start + sum(map(len, source.lines[method.first_line - 1 : method.block_end]))
    return prove(source, shape.node, method.node, (start, end), after.encode())


def test_a_right_split_is_proved_with_its_figures():
    proof = proved(AFTER)
    assert isinstance(proof, SplitProof)
    assert (proof.helpers, proof.statements, proof.comments) == (2, 7, 2)
    untouched = len(BEFORE) - BEFORE.index("    def other") + BEFORE.index("    def run")
    assert proof.bytes_untouched == untouched + 1, "the blank line below the method belongs to nobody"


CALL = "        return self._run_2_second(c, d)"
#: fault -> (code, text of the right file, text in its place)
WRONG = {
    "another value": ("MG202", "c = a + 1\n", "c = a + 2\n"),
    "a lost statement": ("MG202", "        d = c * b\n", ""),
    "a doubled statement": ("MG202", "d = c * b\n", "d = c * b\n        d = c * b\n"),
    "arguments in another order": ("MG202", "first(a, b)", "first(b, a)"),
    "arguments by name": ("MG202", "first(a, b)", "first(a, b=b)"),
    "called twice": ("MG202", CALL, f"        self._run_2_second(c, d)\n{CALL}"),
    "results in another order": ("MG202", "return c, d", "return d, c"),
    "a result that is no name": ("MG202", "return c, d", "return c, d + 0"),
    "another name bound": ("MG202", "c, d = self", "c, e = self"),
    "results bound twice": ("MG202", "c, d = self", "c = d = self"),
    "a default": ("MG202", "_second(self, c, d)", "_second(self, c, d=0)"),
    "packed arguments": ("MG202", "_second(self, c, d)", "_second(self, c, *d)"),
    "a helper nobody awaits": ("MG202", "    def _run_2", "    async def _run_2"),
    "a result nobody takes": ("MG202", CALL, "        self._run_2_second(c, d)"),
    "an early return": (
        "MG202",
        "        d = c * b\n",
        "        if a:\n            return a, b\n        d = c * b\n",
    ),
    "a helper never called": ("MG202", CALL, "        return None"),
    "a lost comment": ("MG204", "        # second\n", ""),
    "a new comment": ("MG204", "        # second\n", "        # second\n        # third\n"),
    "bytes below the method": ("MG205", "return 1", "return 2"),
    "bytes above the method": ("MG205", "import os\n", "import os  \n"),
    "no Python": ("MG201", "for x in", "for x im"),
    "a jump to nowhere": ("MG201", "d = c * b\n", "d = c * b\n        break\n"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_split_is_found(fault: str):
    code, old, new = WRONG[fault]
    assert old in AFTER
    found = proved(AFTER.replace(old, new, 1))
    assert isinstance(found, tuple), "it was taken for right"
    assert code in {refusal.code for refusal in found}


def test_a_parameter_left_out_makes_its_name_a_global_and_is_found():
    after = AFTER.replace("_run_2_second(c, d)", "_run_2_second(c)").replace(
        "_second(self, c, d)", "_second(self, c)"
    )
    found = proved(after)
    assert isinstance(found, tuple)
    assert {(r.code, r.message) for r in found} >= {
        ("MG203", "no longer local in _run_2_second: d"),
        ("MG203", "UndefinedName: d"),
    }


def test_a_result_left_out_makes_its_name_a_global_and_is_found():
    after = AFTER.replace("c, d = self", "c = self").replace("return c, d", "return c")
    found = proved(after)
    assert isinstance(found, tuple)
    assert ("MG203", "no longer local in run: d") in {(r.code, r.message) for r in found}


def test_helpers_of_helpers_are_put_back_too():
    line = "total.append(os.path.join(str(x), str(d)))\n"
    helper = f"    def _run_3_append(self, total, x, d):\n        {line}\n"
    after = AFTER.replace(line, "self._run_3_append(total, x, d)\n").replace(
        "    def other", f"{helper}    def other"
    )
    proof = proved(after)
    assert isinstance(proof, SplitProof) and proof.helpers == 3


def test_an_early_return_of_the_original_may_not_go_to_a_helper_whose_caller_goes_on():
    early = "        if a > 9:\n            return None\n        d = c * b\n"
    before = BEFORE.replace("        d = c * b\n", early)
    found = proved(AFTER.replace("        d = c * b\n", early), before)
    assert isinstance(found, tuple)
    assert [(r.code, r.message) for r in found] == [
        ("MG202", "_run_1_first returns early, and its caller would go on")
    ]


def test_a_helper_beside_the_method_that_nothing_calls_is_found():
    found = proved(
        AFTER.replace("    def other", "    def _run_3_more(self):\n        pass\n\n    def other")
    )
    assert isinstance(found, tuple)
    assert ("MG202", "never called: _run_3_more") in {(r.code, r.message) for r in found}


def test_a_helper_that_calls_itself_is_found():
    found = proved(AFTER.replace("        # first\n", "        # first\n        self._run_1_first(a, b)\n"))
    assert isinstance(found, tuple)
    assert [(r.code, r.message) for r in found] == [("MG202", "_run_1_first is called twice")]
