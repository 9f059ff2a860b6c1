// SPDX-License-Identifier: Apache-2.0
// A tokenizer with tokens for conversations about images, for models without a processor: an image token, which has the
// first id outside of the vocabulary, and the end of an answer, unless the tokenizer has a token that ends a text.
//
// RK-1 (special): the tokens divide a text as special tokens of the model's tokenizer do.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

/// Immutable: thread-safe.
class ReservedTokens final : public Tokenizer {
 public:
  using Tokenizer::decode;
  using Tokenizer::encode;

  explicit ReservedTokens(std::unique_ptr<Tokenizer> tokenizer);

  [[nodiscard]] std::string_view name() const override { return tokenizer_->name(); }
  /// Returns the tokenizer's vocabulary, plus 1 if it does not contain the end of an answer.
  [[nodiscard]] std::int64_t vocabulary() const override { return vocabulary_; }
  void encode(std::string_view text, const Sink& sink) const override;
  [[nodiscard]] std::span<const std::int32_t> begin_of_text() const override { return tokenizer_->begin_of_text(); }
  [[nodiscard]] std::vector<std::int32_t> encode_after_special(std::string_view text) const override;
  /// Passes also the tokens of this class.
  void find_special(std::string_view text, const std::function<void(std::int32_t)>& sink) const override;
  [[nodiscard]] std::string decode(std::span<const std::int32_t> tokens, bool skip_special) const override;
  [[nodiscard]] std::string piece(std::int32_t token) const override;

  [[nodiscard]] std::int32_t image_token() const { return static_cast<std::int32_t>(vocabulary_); }

 private:
  /// A place in a text where a token of this class begins.
  struct Place {
    std::size_t at = std::string_view::npos;
    std::size_t size = 0;
    std::int32_t token = 0;
  };

  [[nodiscard]] Place find(std::string_view text) const;
  /// Passes the tokens of a text; `first`: it begins the whole text.
  void encode_from(std::string_view text, bool first, const Sink& sink) const;
  [[nodiscard]] bool is_own(std::int32_t token) const { return token == image_token() || token == own_end_; }

  std::unique_ptr<Tokenizer> tokenizer_;
  std::int64_t vocabulary_;
  std::string end_text_;       // how texts spell the end, if this class encodes it; else empty
  std::int32_t own_end_ = -1;  // the end, if the tokenizer lacks one
};

}  // namespace maestro
