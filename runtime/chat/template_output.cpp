// SPDX-License-Identifier: Apache-2.0
#include "runtime/chat/template_output.hpp"

namespace maestro {
namespace {

constexpr std::size_t longest_output = std::size_t{64} << 20;  // bytes

}  // namespace

void TemplateOutput::append(std::string_view text, const TemplatePlace& place) {
  if (text_.size() + text.size() > longest_output) fail_template(place, "the text is longer than 64 MiB");
  text_ += text;
}

void TemplateOutput::note_generated(std::size_t begin) {
  if (text_.size() == begin) return;
  while (!generated_.empty() && generated_.back().begin >= begin) generated_.pop_back();
  if (!generated_.empty() && generated_.back().end >= begin) {
    generated_.back().end = text_.size();
  } else {
    generated_.push_back({begin, text_.size()});
  }
}

}  // namespace maestro
