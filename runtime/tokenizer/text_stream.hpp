// SPDX-License-Identifier: Apache-2.0
// The text of tokens as they come.
//
// TX-1 (same text): all pieces together are the text that decode() returns for all tokens, special tokens left out,
//       where the bytes of all tokens are UTF-8.
// TX-2 (whole characters): a piece ends where a character does; the bytes of a begun character wait for the next token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

/// Decodes a token together with those of the piece before it, because a decoder may treat the first token of a text
/// in its own way. Not thread-safe; the tokenizer outlives the stream.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  /// Returns the text that the token completes; often empty.
  [[nodiscard]] std::string add(std::int32_t token);
  /// Returns what waits, with U+FFFD for an unfinished character; the stream is as new afterwards.
  [[nodiscard]] std::string finish();

 private:
  /// The text behind the last piece.
  [[nodiscard]] std::string waiting() const;

  const Tokenizer* tokenizer_;
  std::vector<std::int32_t> tokens_;  // those of the last piece, and those behind it
  std::size_t last_ = 0;              // how many are of the last piece
  std::string returned_;              // the text of those
};

}  // namespace maestro
