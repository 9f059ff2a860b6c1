// SPDX-License-Identifier: Apache-2.0
// The text of tokens as they arrive.
//
// TX-1 (same text): if the bytes of all tokens are UTF-8, the pieces together equal the text that decode() returns for
//       all tokens without special tokens.
// TX-2 (whole characters): a piece never ends inside a character; a begun character waits for the next token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

/// Decodes a token together with the tokens of the previous piece, because a decoder may treat the first token of a
/// text differently. Not thread-safe; the tokenizer outlives the stream.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  /// Returns the text that the token completes; often empty.
  [[nodiscard]] std::string add(std::int32_t token);
  /// Returns the waiting text, with U+FFFD for an unfinished character; resets the stream.
  [[nodiscard]] std::string finish();

 private:
  /// Returns the text after the last piece.
  [[nodiscard]] std::string waiting() const;

  const Tokenizer* tokenizer_;
  std::vector<std::int32_t> tokens_;  // tokens of the last piece, and tokens after it
  std::size_t last_ = 0;              // number of tokens in the last piece
  std::string returned_;              // text of the last piece
};

}  // namespace maestro
