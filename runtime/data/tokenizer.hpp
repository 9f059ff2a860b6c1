// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace maestro {

/// Immutable after construction: thread-safe.
class Tokenizer {
 public:
  using Sink = std::function<void(std::span<const std::int32_t>)>;

  virtual ~Tokenizer() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// Ids are in [0, vocabulary()).
  [[nodiscard]] virtual std::int64_t vocabulary() const = 0;
  /// Passes the tokens of `text` to `sink`, in order and in pieces of any size, so that a large text needs no second
  /// copy four times its size.
  virtual void encode(std::string_view text, const Sink& sink) const = 0;
  /// Returns the text of tokens, for display: always valid UTF-8; tokens without text (a truncated character, an id
  /// outside the vocabulary) become U+FFFD.
  [[nodiscard]] virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;

  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const;
};

/// A token for each byte: id = value of the byte, vocabulary 256. encode then decode is the identity on valid UTF-8.
class ByteTokenizer final : public Tokenizer {
 public:
  using Tokenizer::encode;
  [[nodiscard]] std::string_view name() const override { return "bytes"; }
  [[nodiscard]] std::int64_t vocabulary() const override { return 256; }
  void encode(std::string_view text, const Sink& sink) const override;
  [[nodiscard]] std::string decode(std::span<const std::int32_t> tokens) const override;
};

/// Returns the tokenizer called `name` in [data]; throws JobError naming the valid names.
[[nodiscard]] std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name);

}  // namespace maestro
