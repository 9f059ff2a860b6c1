// SPDX-License-Identifier: Apache-2.0
// The text that a chat template writes. Not a public header.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/chat/chat_template.hpp"
#include "runtime/chat/template_lexer.hpp"
#include "runtime/chat/template_values.hpp"

namespace maestro {
/// The output so far, with the ranges of its {% generation %} blocks.
class TemplateOutput {
 public:
  /// Throws JobError after 64 MiB.
  void append(std::string_view text, const TemplatePlace& place);
  [[nodiscard]] std::size_t size() const { return text_.size(); }
  /// Records that a {% generation %} block wrote the output from `begin` on. Blocks inside it are a part of it.
  void note_generated(std::size_t begin);

  /// Returns the text that `write` appends, without adding it to the output.
  template <class Write>
  TemplateValue captured(Write write);
  /// Returns whether a {% generation %} block wrote to a text that became a value.
  [[nodiscard]] bool has_lost_ranges() const { return lost_; }

  /// Returns the complete output, once.
  [[nodiscard]] RenderedChat take() { return {std::move(text_), std::move(generated_)}; }

 private:
  std::string text_;
  std::vector<ByteRange> generated_;  // ranges of text_
  bool lost_ = false;
};

template <class Write>
TemplateValue TemplateOutput::captured(Write write) {
  std::string before = std::exchange(text_, "");
  std::vector<ByteRange> ranges = std::exchange(generated_, {});
  write();
  lost_ = lost_ || !generated_.empty();
  generated_ = std::move(ranges);
  return std::exchange(text_, std::move(before));
}

}  // namespace maestro
