#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what Jinja makes of chat templates, for chat_template_test.cpp.

Needs jinja2; run from anywhere: tests/chat/record_references.py
Reads references/*.jinja, templates in the forms of model families, and writes references/expected.json: for each template
the text of each conversation, or null where the template refuses it. The environment is that of transformers'
apply_chat_template, without strftime_now.
"""
import json
from pathlib import Path

from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

REFERENCES = Path(__file__).resolve().parent / "references"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def message(role, content):
    return {"role": role, "content": content}


CONVERSATIONS = [
    [message("user", "Hello!")],
    [message("system", "You answer in rhymes."), message("user", " two  spaces \n")],
    [message("user", "What is 1 + 1?"), message("assistant", " 2 "), message("user", "And 2 + 2?")],
    [message("system", "  Short.\n"), message("user", "a\nb"), message("assistant", "c <b> & \"d\" 'e'"),
     message("user", "d\u00e9j\u00e0 vu \u65e5\u672c \U0001f600 {{ x }} {% y %}")],
    [message("user", "one"), message("user", "two")],
    [message("assistant", "I begin."), message("user", "<think>no</think> yes")],
    [message("user", "q"), message("assistant", "<think>\nhm\n</think>\n\nyes"), message("user", "")],
    [message("critic", "?")],
    [],
]


def refuse(text):
    raise TemplateError(text)


def environment():
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    made.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    made.globals["raise_exception"] = refuse
    return made


def rendered(template, messages):
    try:
        return template.render(messages=messages, tools=None, documents=None, add_generation_prompt=True, **TOKENS)
    except TemplateError:
        return None


def main():
    expected = {"conversations": CONVERSATIONS, "texts": {}}
    for file in sorted(REFERENCES.glob("*.jinja")):
        template = environment().from_string(file.read_text())
        expected["texts"][file.stem] = [rendered(template, messages) for messages in CONVERSATIONS]
    (REFERENCES / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
