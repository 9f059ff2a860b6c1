// SPDX-License-Identifier: Apache-2.0
// Regular expressions that cut text into words. The expressions of GPT-2, Llama 3, Qwen and tekken have special
// matchers, which know Unicode 16 and run several times as fast; Oniguruma, the engine of Hugging Face's tokenizers,
// runs all others.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"

namespace maestro {

/// Immutable after construction: thread-safe. Text is valid UTF-8.
class Pattern {
 public:
  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  virtual ~Pattern() = default;
  /// Returns the leftmost match that begins at `from`, the begin of a character, or later. A match may be empty. Throws
  /// JobError for an expression that takes more steps than the limit for the rest of the text.
  [[nodiscard]] virtual std::optional<Match> next(std::string_view text, std::size_t from) const = 0;
};

/// Expressions that have matchers.
namespace word_patterns {
inline constexpr std::string_view gpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view llama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view qwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view qwen3_5 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view tekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
}  // namespace word_patterns

/// Returns the matcher of an expression in Oniguruma's Ruby syntax; an error (invalid_argument) holds Oniguruma's
/// complaint.
[[nodiscard]] Result<std::shared_ptr<const Pattern>> make_pattern(const std::string& expression);
/// Returns the special matcher of an expression, or null.
[[nodiscard]] std::shared_ptr<const Pattern> make_word_pattern(std::string_view expression);
/// Returns Oniguruma's matcher of an expression, even if it has a special matcher.
[[nodiscard]] Result<std::shared_ptr<const Pattern>> make_oniguruma_pattern(const std::string& expression);
/// Returns a matcher of exactly these bytes, at least one.
[[nodiscard]] std::shared_ptr<const Pattern> make_literal_pattern(std::string literal);

}  // namespace maestro
