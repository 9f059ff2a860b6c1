// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

/// Immutable once opened: thread-safe.
class Tokenizer {
 public:
  using Sink = std::function<void(std::span<const std::int32_t>)>;

  virtual ~Tokenizer() = default;
  /// Returns the name for messages and fingerprints.
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// Returns the bound of the ids, which are in [0, vocabulary()).
  [[nodiscard]] virtual std::int64_t vocabulary() const = 0;
  /// Passes the tokens of `text` to `sink`, in order and in pieces of any size, so that a large text needs no second
  /// copy four times its size. Adds no special tokens; special tokens that the text spells out are tokens.
  virtual void encode(std::string_view text, const Sink& sink) const = 0;
  /// Returns the tokens that the tokenizer's file puts before a text, such as <bos>; empty: none.
  [[nodiscard]] virtual std::span<const std::int32_t> begin_of_text() const { return {}; }
  /// Passes the tokens of a text that is read from its beginning, such as documents and prompts: the tokens of encode()
  /// and, with `begin`, begin_of_text() before them, unless the text itself spells these tokens.
  void encode_text(std::string_view text, bool begin, const Sink& sink) const;
  [[nodiscard]] std::vector<std::int32_t> encode_text(std::string_view text, bool begin) const;
  /// Returns the tokens of a text that follows a special token, such as an image: without the tokenizer's mark of a
  /// text's first word.
  [[nodiscard]] virtual std::vector<std::int32_t> encode_after_special(std::string_view text) const {
    return encode(text);
  }
  /// Returns the tokens with the special tokens that the tokenizer's file puts around a text.
  [[nodiscard]] virtual std::vector<std::int32_t> encode_special(std::string_view text) const { return encode(text); }
  /// Passes each special token that `text` spells to `sink`.
  virtual void find_special(std::string_view /*text*/, const std::function<void(std::int32_t)>& /*sink*/) const {}
  /// Returns the text of tokens: always valid UTF-8; tokens without text (a truncated character, an id outside the
  /// vocabulary) become U+FFFD. With `skip_special`, special tokens become empty.
  [[nodiscard]] virtual std::string decode(std::span<const std::int32_t> tokens, bool skip_special) const = 0;
  /// Returns a token as the tokenizer's file spells it, for display.
  [[nodiscard]] virtual std::string piece(std::int32_t token) const = 0;

  /// Returns the token that ends a text (a document, an answer), if the tokenizer has such a token: eos_token of the
  /// tokenizer_config.json next to it, else eos_token_id of the generation_config.json, else <|endoftext|>.
  [[nodiscard]] std::optional<std::int32_t> end_of_text() const { return end_of_text_; }
  /// Returns "bytes", or the number of tokens, for the fingerprint of data.
  [[nodiscard]] std::string fingerprint() const;
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const;
  [[nodiscard]] std::string decode(std::span<const std::int32_t> tokens) const { return decode(tokens, false); }

 protected:
  void set_end_of_text(std::int32_t token) { end_of_text_ = token; }

 private:
  friend Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::filesystem::path& folder_or_file);
  std::optional<std::int32_t> end_of_text_;
};

/// A token for each byte: id = value of the byte, vocabulary 256. encode then decode is the identity on valid UTF-8.
class ByteTokenizer final : public Tokenizer {
 public:
  using Tokenizer::decode;
  using Tokenizer::encode;
  [[nodiscard]] std::string_view name() const override { return "bytes"; }
  [[nodiscard]] std::int64_t vocabulary() const override { return 256; }
  void encode(std::string_view text, const Sink& sink) const override;
  [[nodiscard]] std::string decode(std::span<const std::int32_t> tokens, bool skip_special) const override;
  [[nodiscard]] std::string piece(std::int32_t token) const override;
};

/// Returns the tokenizer.json that makes the Hugging Face library read bytes as ByteTokenizer does; `end` adds the
/// special token "<|end|>" with id 256.
[[nodiscard]] std::string byte_tokenizer_json(bool end);
/// Returns whether a file holds one of these two texts.
[[nodiscard]] bool is_byte_tokenizer(const std::filesystem::path& file);

/// Returns the tokenizer of a tokenizer.json. An error names the file, the key, and for an unsupported part the
/// supported values.
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> read_tokenizer_json(const std::filesystem::path& file);
/// Returns the tokenizer of GPT-2's pair of files: vocab.json, and merges.txt next to it.
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> read_vocabulary_and_merges(const std::filesystem::path& vocabulary);
/// Returns the tokenizer of a SentencePiece tokenizer.model. A Unigram model is refused (invalid_argument): its choice
/// between segmentations with equal scores depends on the library's version.
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> read_sentencepiece(const std::filesystem::path& file);
/// Returns the tokenizer of a folder (tokenizer.json, else tokenizer.model, else vocab.json with merges.txt) or of one
/// of these files, with the token that ends a text; a ByteTokenizer for byte_tokenizer_json().
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::filesystem::path& folder_or_file);

/// Returns begin_of_text() as the tokenizer's file spells it, "<bos>"; empty: none.
[[nodiscard]] std::string spelled_begin_of_text(const Tokenizer& tokenizer);

/// Returns the tokenizer called `name` in [data]: "bytes" (also if empty), an added tokenizer, a folder or a file.
/// Throws JobError.
[[nodiscard]] std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name);
/// Adds a tokenizer that [data] may name, for the rest of the process; `origin` is the file of a plug-in. Throws
/// JobError if the name is taken. Thread-safe.
void add_tokenizer(std::string name, std::function<std::unique_ptr<Tokenizer>()> make, std::string origin);
/// Returns whether a name is the name of an added tokenizer, which is without files.
[[nodiscard]] bool is_added_tokenizer(const std::string& name);

}  // namespace maestro
