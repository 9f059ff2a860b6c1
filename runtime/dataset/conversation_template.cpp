// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/conversation_template.hpp"

#include <algorithm>

#include "runtime/dataset/kept_text.hpp"

namespace maestro {

namespace {

constexpr std::string_view user = "USER: ", assistant = "\nASSISTANT:";

}  // namespace

const char* const conversation_template = R"(
{%- macro text_of(content) -%}
  {%- if content is string -%}{{- content -}}
  {%- else -%}{%- for part in content -%}{{- '<image>' if part.type == 'image' else part.text -}}{%- endfor -%}{%- endif -%}
{%- endmacro -%}
{%- set state = namespace(asked=false) -%}
{%- for message in messages -%}
  {%- set text = text_of(message.content) -%}
  {%- if message.role == 'system' and loop.first -%}{{- text + '\n' if text else '' -}}
  {%- elif message.role == 'user' and not state.asked -%}
    {%- set state.asked = true -%}{{- 'USER: ' + text + '\nASSISTANT: ' -}}
  {%- elif message.role == 'assistant' and state.asked -%}
    {%- set state.asked = false -%}{{- text + eos_token -}}
  {%- else -%}
    {{- raise_exception('messages[' ~ loop.index0 ~ '] is from "' ~ message.role ~ '", but questions and answers must '
        ~ 'take turns, a question first, after at most one system text') -}}
  {%- endif -%}
{%- endfor -%})";

std::string first_question(std::string_view text) {
  const std::size_t begin = text.find(user);
  if (begin != text.npos) text.remove_prefix(begin + user.size());
  return std::string(trimmed(text.substr(0, text.rfind(assistant))));
}

}  // namespace maestro
