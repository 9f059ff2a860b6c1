#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records Jinja's output for chat templates, for chat_template_test.cpp.

Needs jinja2; run from anywhere: tests/chat/record_references.py
Reads references/*.jinja, templates in the forms of model families, and writes references/expected.json: the text of
each conversation by template, or null if the template refuses it. Reads references/expressions.txt, short templates
separated by a line %%, and writes references/expressions.json: each with its text for the same messages, or null. The
environment equals transformers' apply_chat_template; strftime_now is defined only for the short templates, on
2026-05-28.
"""
import datetime
import json
from pathlib import Path

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

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


MESSAGES = [
    message("system", "Be brief."),
    message("user", "Z\u00fcrich \u2014 \u65e5\u672c \U0001f600") | {
        "n": 3, "f": 2.5, "l": [1, "a", None, True, 2.0],
        "d": {"b": 1, "a": [1, {"x": "\u00e9\n\"q\" </b> \u0001"}], "C": None}},
    message("assistant", "ok") | {"tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]},
]
NOW = datetime.datetime(2026, 5, 28, 20, 26, 40)


def refuse(message):
    raise TemplateError(message)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class PublicNamespace(Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        if any(str(name).startswith("_") for name in dict(*args, **kwargs)):
            raise SecurityError("a private name")
        Namespace.__init__(self, *args, **kwargs)


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("write"), [], [], body).set_lineno(line)

    def write(self, caller):
        return caller()


def environment():
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    made.filters["tojson"] = to_json
    made.globals["raise_exception"] = refuse
    made.globals["namespace"] = PublicNamespace
    return made


def expression(source):
    made = environment()
    made.globals["strftime_now"] = NOW.strftime
    try:
        return made.from_string(source).render(
            messages=MESSAGES, tools=None, documents=None, add_generation_prompt=True, **TOKENS)
    except Exception:  # template errors have many types
        return None


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
    sources = (REFERENCES / "expressions.txt").read_text().removesuffix("\n").split("\n%%\n")
    made = {"messages": MESSAGES, "texts": [[source, expression(source)] for source in sources]}
    (REFERENCES / "expressions.json").write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
