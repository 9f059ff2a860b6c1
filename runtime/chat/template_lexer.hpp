// SPDX-License-Identifier: Apache-2.0
// The tokens of a chat template, without the white space around tags that transformers removes (Jinja's trim_blocks and
// lstrip_blocks).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace maestro {

/// A place in a template, for messages.
struct TemplatePlace {
  std::string_view name;  ///< name of the template's file
  int line = 0;
};
/// Throws JobError: "file: line N of the chat template: problem".
[[noreturn]] void fail_template(const TemplatePlace& place, const std::string& problem);
/// Throws JobError for a construct that Jinja supports but this room does not, with the remedy.
[[noreturn]] void refuse_template(const TemplatePlace& place, const std::string& construct);

struct TemplateToken {
  enum class Kind : std::uint8_t { text, output, tag, end_of_tag, name, integer, real, string, symbol, end };
  Kind kind = Kind::end;  ///< output and tag: {{ and {%; end_of_tag: }} and %}
  std::string text;       ///< text; for a string its value
  int line = 0;
};

/// Returns the tokens, ending with `end`. Throws JobError.
[[nodiscard]] std::vector<TemplateToken> lex_template(std::string_view source, std::string_view name);

}  // namespace maestro
