"""Which imports run when a module is imported, told from its lines."""

from __future__ import annotations

import pytest

from migration.code.import_graph import imported_names


@pytest.mark.parametrize(
    "opening",
    [
        "def format_rows():",  # no `for`
        "def without_rows():",
        "async def forward():",
        "async  def with_rows(\n    rows,\n):",
        "if TYPE_CHECKING:",
    ],
)
def test_what_a_function_imports_is_not_imported_with_the_module(opening: str):
    text = f"class C:\n    {opening}\n        from pkg.worker import a\n"
    assert list(imported_names(text.encode(), "pkg")) == []


@pytest.mark.parametrize(
    "opening", ["for row in rows:", "with rows:", "try:", "class Rows:", "if rows:", "async for row in rows:"]
)
def test_what_a_block_of_the_module_imports_is(opening: str):
    text = f"{opening}\n    from pkg.worker import a\n"
    assert list(imported_names(text.encode(), "pkg")) == ["pkg.worker", "pkg.worker.a"]
