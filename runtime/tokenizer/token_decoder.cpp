// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/token_decoder.hpp"

#include <charconv>
#include <optional>

#include "runtime/core/utf8.hpp"
#include "runtime/tokenizer/bpe.hpp"
#include "runtime/tokenizer/normalizer.hpp"

namespace maestro {

namespace {

using Tokens = std::vector<std::string>;

std::string joined(const Tokens& tokens, std::string_view between = "") {
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) text += between;
    text += tokens[i];
  }
  return text;
}

Tokens decoded(const ByteLevelDecoder&, Tokens tokens) {
  std::string bytes;
  for (const std::string& token : tokens) bytes += bytes_of_token(token).value_or(token);
  return {repaired_utf8(bytes)};
}

Tokens decoded(const ReplaceDecoder& step, Tokens tokens) {
  for (std::string& token : tokens) token = replace_all(token, *step.pattern, step.content);
  return tokens;
}

/// Returns the byte of a token such as <0x0A>.
std::optional<char> fallback_byte(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned value = 0;
  const auto [end, failure] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  if (failure != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(value);
}

Tokens decoded(const ByteFallbackDecoder&, Tokens tokens) {
  Tokens made;
  std::string bytes;
  const auto end_run = [&] {
    if (bytes.empty()) return;
    if (valid_utf8_prefix(bytes) == bytes.size()) {
      made.push_back(bytes);
    } else {
      made.insert(made.end(), bytes.size(), "\xEF\xBF\xBD");
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = fallback_byte(token)) {
      bytes += *byte;
    } else {
      end_run();
      made.push_back(std::move(token));
    }
  }
  end_run();
  return made;
}

Tokens decoded(const FuseDecoder&, Tokens tokens) {
  return {joined(tokens)};
}

Tokens decoded(const StripDecoder& step, Tokens tokens) {
  for (std::string& token : tokens) {
    std::string_view left(token);
    for (std::size_t i = 0; i < step.start && left.starts_with(step.content); ++i)
      left.remove_prefix(step.content.size());
    for (std::size_t i = 0; i < step.stop && left.ends_with(step.content); ++i) left.remove_suffix(step.content.size());
    token = std::string(left);
  }
  return tokens;
}

Tokens decoded(const MetaspaceDecoder& step, Tokens tokens) {
  const auto mark = make_literal_pattern(step.replacement);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = replace_all(tokens[i], *mark, i == 0 && step.prepended ? "" : " ");
  }
  return tokens;
}

}  // namespace

std::string TokenDecoder::decode(std::vector<std::string> tokens) const {
  if (steps_.empty()) return joined(tokens, " ");
  for (const Step& step : steps_) {
    tokens = std::visit([&](const auto& each) { return decoded(each, std::move(tokens)); }, step);
  }
  return joined(tokens);
}

}  // namespace maestro
