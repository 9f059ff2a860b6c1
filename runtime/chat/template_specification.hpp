// SPDX-License-Identifier: Apache-2.0
// Python's format specifications: width, sign, precision and type of a value. Not a public header.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "runtime/chat/template_values.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

inline constexpr std::size_t most_format_width = 10'000;

/// The part of a format after the colon, or between % and its letter.
struct FormatSpecification {
  std::string fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '-';
  bool alternate = false;
  char grouping = '\0';
  std::size_t width = 0;
  int precision = -1;
  char type = '\0';
};

class FormatReader;

/// Reads the part of a format after the colon. Throws JobError.
[[nodiscard]] FormatSpecification specification_of(std::string_view text, const TemplatePlace& place);
/// Returns the text filled up to its width; `align` is the default for its kind.
[[nodiscard]] std::string padded(const std::string& sign, const std::string& text, const FormatSpecification& how,
                                 char align);
/// Returns a formatted number. Throws JobError for a type that does not fit the number, with the text of `in`.
[[nodiscard]] std::string formatted_number(const TemplateValue& value, const FormatSpecification& how,
                                           const FormatReader& in);

[[nodiscard]] inline bool is_format_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Reads a format from the first character to the last. Throws JobError.
class FormatReader {
 public:
  FormatReader(std::string_view text, const TemplatePlace& place) : text_(text), place_(place) {}

  [[nodiscard]] bool at_end() const { return at_ == text_.size(); }
  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool take(char c) {
    if (at_end() || peek() != c) return false;
    ++at_;
    return true;
  }
  char take_any() { return text_[at_++]; }
  std::string_view take_until(std::string_view ends) {
    const std::size_t end = std::min(text_.find_first_of(ends, at_), text_.size());
    const std::string_view made = text_.substr(at_, end - at_);
    at_ = end;
    return made;
  }
  std::size_t take_number() {
    std::size_t number = 0;
    for (; is_format_digit(peek()); ++at_) {
      number = number * 10 + static_cast<std::size_t>(peek() - '0');
      if (number > most_format_width) fail("has a width above 10,000");
    }
    return number;
  }
  [[noreturn]] void fail(const std::string& problem) const {
    fail_template(place_, "the format \"" + printable(text_) + "\" " + problem);
  }
  [[nodiscard]] const TemplatePlace& place() const { return place_; }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
  TemplatePlace place_;
};

}  // namespace maestro
