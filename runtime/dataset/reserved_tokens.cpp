// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/reserved_tokens.hpp"

#include <utility>

#include "runtime/dataset/record_images.hpp"

namespace maestro {

namespace {

constexpr std::string_view spelled_end = "<|end|>";  // as in byte_tokenizer_json()

}  // namespace

ReservedTokens::ReservedTokens(std::unique_ptr<Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)), vocabulary_(tokenizer_->vocabulary()) {
  const std::optional<std::int32_t> end = tokenizer_->end_of_text();
  if (!end) {
    own_end_ = static_cast<std::int32_t>(vocabulary_++);
    end_text_ = spelled_end;
  } else if (const std::string text = tokenizer_->piece(*end); tokenizer_->encode(text) != std::vector{*end}) {
    end_text_ = text;
  }
  set_end_of_text(end.value_or(own_end_));
}

ReservedTokens::Place ReservedTokens::find(std::string_view text) const {
  Place found{text.find(image_marker), image_marker.size(), image_token()};
  if (end_text_.empty()) return found;
  const std::size_t end = text.find(end_text_);
  return end < found.at ? Place{end, end_text_.size(), *end_of_text()} : found;
}

void ReservedTokens::encode_from(std::string_view text, bool first, const Sink& sink) const {
  for (;; first = false) {
    const Place place = find(text);
    const std::string_view piece = text.substr(0, place.at);
    if (first) {
      tokenizer_->encode(piece, sink);
    } else if (!piece.empty()) {
      sink(tokenizer_->encode_after_special(piece));
    }
    if (place.at == text.npos) return;
    sink({&place.token, 1});
    text.remove_prefix(place.at + place.size);
  }
}

void ReservedTokens::encode(std::string_view text, const Sink& sink) const {
  encode_from(text, true, sink);
}

std::vector<std::int32_t> ReservedTokens::encode_after_special(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  encode_from(text, false,
              [&](std::span<const std::int32_t> piece) { tokens.insert(tokens.end(), piece.begin(), piece.end()); });
  return tokens;
}

void ReservedTokens::find_special(std::string_view text, const std::function<void(std::int32_t)>& sink) const {
  tokenizer_->find_special(text, sink);
  for (Place place = find(text); place.at != text.npos; place = find(text)) {
    sink(place.token);
    text.remove_prefix(place.at + place.size);
  }
}

std::string ReservedTokens::decode(std::span<const std::int32_t> tokens, bool skip_special) const {
  std::string text;
  std::vector<std::int32_t> words;
  const auto flush = [&] {
    if (!words.empty()) text += tokenizer_->decode(std::exchange(words, {}), skip_special);
  };
  for (const std::int32_t token : tokens) {
    if (!is_own(token)) {
      words.push_back(token);
    } else if (!skip_special) {
      flush();
      text += piece(token);
    }
  }
  flush();
  return text;
}

std::string ReservedTokens::piece(std::int32_t token) const {
  if (token == image_token()) return std::string(image_marker);
  return token == own_end_ ? std::string(spelled_end) : tokenizer_->piece(token);
}

}  // namespace maestro
