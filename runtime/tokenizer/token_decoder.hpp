// SPDX-License-Identifier: Apache-2.0
// The steps that make text of tokens: `decoder` in a tokenizer.json.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/tokenizer/pattern.hpp"
#include "runtime/tokenizer/pre_tokenizer.hpp"

namespace maestro {

/// Characters of GPT-2's alphabet become bytes; the bytes of all tokens together are UTF-8.
struct ByteLevelDecoder {};
/// Replaces every match in every token.
struct ReplaceDecoder {
  std::shared_ptr<const Pattern> pattern;
  std::string content;
};
/// Tokens <0x00> to <0xFF> become bytes; a run that is not UTF-8 becomes U+FFFD, once per byte.
struct ByteFallbackDecoder {};
/// Joins all tokens.
struct FuseDecoder {};
/// Removes up to `start` and `stop` repetitions of `content` at the beginning and end of every token.
struct StripDecoder {
  std::string content;
  std::size_t start = 0;
  std::size_t stop = 0;
};
/// Reverses Metaspace.
struct MetaspaceDecoder {
  std::string replacement;
  bool prepended = true;
};

/// Immutable after construction: thread-safe.
class TokenDecoder {
 public:
  using Step =
      std::variant<ByteLevelDecoder, ReplaceDecoder, ByteFallbackDecoder, FuseDecoder, StripDecoder, MetaspaceDecoder>;

  TokenDecoder() = default;
  explicit TokenDecoder(std::vector<Step> steps) : steps_(std::move(steps)) {}
  /// Returns the text of tokens: valid UTF-8. Without steps, the tokens with spaces between them.
  [[nodiscard]] std::string decode(std::vector<std::string> tokens) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace maestro
