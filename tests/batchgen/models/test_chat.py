"""Chat templates render as transformers renders them, and cannot reach out of their sandbox."""

from __future__ import annotations

import pytest

from batchgen.models.chat import ChatTemplate, ChatTemplateError

MESSAGES = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]


def render(source: str | None) -> str:
    return ChatTemplate(source, "m", {"bos_token": "<s>"}).render(MESSAGES)


def test_lines_that_hold_only_blocks_leave_nothing_behind() -> None:
    source = "{% for m in messages %}\n  {% if m.role == 'user' %}\n{{ m.content }}|\n  {% endif %}\n{% endfor %}\nend"
    from transformers.utils.chat_template_utils import _compile_jinja_template

    assert render(source) == "hello|\nend"
    assert render(source) == _compile_jinja_template(source).render(messages=MESSAGES)


def test_templates_have_the_names_that_files_use() -> None:
    assert render("{{ bos_token }}{{ messages | tojson }}{{ add_generation_prompt }}") == (
        '<s>[{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]True'
    )
    assert len(render("{{ strftime_now('%Y') }}")) == 4
    assert render("{% for m in messages %}{{ m.role }}{% break %}{% endfor %}") == "user"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{{ messages.append(1) }}", "not safely callable|unsafe"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].content + 1 }}", "str"),
        ("{% for %}", "Expected"),
        (None, "has no chat template"),
    ],
)
def test_what_a_template_may_not_do_is_one_error(source: str | None, why: str) -> None:
    with pytest.raises(ChatTemplateError, match=why):
        render(source)
