// SPDX-License-Identifier: Apache-2.0
// The tokens of a chat template, with the white space around its tags removed as transformers has it done (Jinja's
// trim_blocks and lstrip_blocks).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace maestro {

/// A place in a template, for messages.
struct TemplatePlace {
  std::string_view name;  ///< of the template's file
  int line = 0;
};
/// Throws JobError: "file: line N of the chat template: problem".
[[noreturn]] void fail_template(const TemplatePlace& place, const std::string& problem);
/// The same for a construct that Jinja has and this room has not, with the way out.
[[noreturn]] void refuse_template(const TemplatePlace& place, const std::string& construct);

struct TemplateToken {
  enum class Kind : std::uint8_t { text, output, tag, end_of_tag, name, integer, real, string, symbol, end };
  Kind kind = Kind::end;  ///< output and tag: where {{ and {% stand; end_of_tag: where }} and %} stand
  std::string text;       ///< of a string its value
  int line = 0;
};

/// Returns the tokens, of which the last is `end`. Throws JobError.
[[nodiscard]] std::vector<TemplateToken> lex_template(std::string_view source, std::string_view name);

}  // namespace maestro
