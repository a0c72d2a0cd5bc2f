"""Rendering chat templates as model files carry them: Jinja, sandboxed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, NoReturn

__all__ = ["ChatTemplate", "ChatTemplateError"]


class ChatTemplateError(ValueError):
    """The model has no chat template, or its template refuses these messages."""


class ChatTemplate:
    """A template and the special token texts that it may name (``bos_token``, ``eos_token``)."""

    def __init__(self, source: str | None, model: str, variables: Mapping[str, str]) -> None:
        self.source, self.model, self.variables = source, model, dict(variables)

    def render(
        self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any] | None = None
    ) -> str:
        """The prompt text for ``messages``, ending where the assistant's answer begins. ``variables``: more of what the
        template may name."""
        import jinja2

        if self.source is None:
            raise ChatTemplateError(
                f"model {self.model} has no chat template: send a prompt to /v1/completions instead"
            )
        try:
            return self._template.render(
                messages=list(messages), add_generation_prompt=True, **self.variables, **(variables or {})
            )
        except (jinja2.TemplateError, TypeError, KeyError, IndexError) as error:
            raise ChatTemplateError(
                f"the chat template of {self.model} refuses these messages: {error}"
            ) from error

    @cached_property
    def _template(self) -> Any:
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        env.filters["tojson"] = lambda value, indent=None: json.dumps(
            value, ensure_ascii=False, indent=indent
        )
        env.globals["raise_exception"] = _refuse
        env.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        assert self.source is not None
        return env.from_string(self.source)


def _refuse(message: str) -> NoReturn:
    import jinja2

    raise jinja2.TemplateError(message)
