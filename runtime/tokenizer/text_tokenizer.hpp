// SPDX-License-Identifier: Apache-2.0
// The tokenizer that a tokenizer.json describes: added tokens are found, the text between them is normalized, cut into
// words, and the model encodes each word. Token ids equal the ids of Hugging Face's tokenizers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/tokenizer/added_tokens.hpp"
#include "runtime/tokenizer/bpe.hpp"
#include "runtime/tokenizer/normalizer.hpp"
#include "runtime/tokenizer/pre_tokenizer.hpp"
#include "runtime/tokenizer/token_decoder.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

struct TextTokenizerParts {
  std::string name;  ///< file name, for messages
  std::vector<AddedToken> added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<BpeModel> model;
  TokenDecoder decoder;
  std::vector<std::string> tokens;  ///< tokens of the file by id; empty: an id without a token
  /// Tokens that encode_special() puts around a text.
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> behind;
};

class TextTokenizer final : public Tokenizer {
 public:
  explicit TextTokenizer(TextTokenizerParts parts);
  using Tokenizer::encode;
  [[nodiscard]] std::string_view name() const override { return parts_.name; }
  [[nodiscard]] std::int64_t vocabulary() const override { return static_cast<std::int64_t>(parts_.tokens.size()); }
  void encode(std::string_view text, const Sink& sink) const override;
  [[nodiscard]] std::span<const std::int32_t> begin_of_text() const override { return parts_.before; }
  [[nodiscard]] std::vector<std::int32_t> encode_after_special(std::string_view text) const override;
  [[nodiscard]] std::vector<std::int32_t> encode_special(std::string_view text) const override;
  void find_special(std::string_view text, const std::function<void(std::int32_t)>& sink) const override;
  [[nodiscard]] std::string decode(std::span<const std::int32_t> tokens, bool skip_special) const override;
  [[nodiscard]] std::string piece(std::int32_t token) const override;

 private:
  class Encoding;

  void encode(std::string_view text, bool begins, const Sink& sink) const;

  TextTokenizerParts parts_;
  AddedTokens raw_;         // found in the original text
  AddedTokens normalized_;  // found in the normalized text
  std::vector<bool> special_;
  std::unique_ptr<WordCaches> caches_ = std::make_unique<WordCaches>();
};

}  // namespace maestro
