// SPDX-License-Identifier: Apache-2.0
// The steps that change a text before it is cut into words: `normalizer` in a tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/tokenizer/pattern.hpp"

namespace maestro {

/// A Unicode normalization form (UAX #15), by utf8proc.
struct UnicodeForm {
  enum class Form { nfc, nfd, nfkc, nfkd } form = Form::nfc;
};
/// Puts its text before any text that is not empty.
struct Prepend {
  std::string text;
};
/// Replaces every match.
struct Replace {
  std::shared_ptr<const Pattern> pattern;
  std::string content;
};
/// Removes white space at the ends.
struct StripSpace {
  bool left = false;
  bool right = false;
};

/// Immutable after construction: thread-safe. Without steps, the identity.
class Normalizer {
 public:
  using Step = std::variant<UnicodeForm, Prepend, Replace, StripSpace>;

  Normalizer() = default;
  explicit Normalizer(std::vector<Step> steps) : steps_(std::move(steps)) {}
  [[nodiscard]] bool empty() const { return steps_.empty(); }
  /// Returns the normalized text. `text` is valid UTF-8; so is the result.
  [[nodiscard]] std::string normalize(std::string_view text) const;

 private:
  std::vector<Step> steps_;
};

/// Returns `text` with every match replaced by `content`.
[[nodiscard]] std::string replace_all(std::string_view text, const Pattern& pattern, std::string_view content);

}  // namespace maestro
