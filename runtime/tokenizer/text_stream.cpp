// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/text_stream.hpp"

#include <span>

namespace maestro {

std::string TextStream::waiting() const {
  const std::string now = tokenizer_->decode(tokens_, true);
  if (now.starts_with(returned_)) return now.substr(returned_.size());
  // Bytes that are not UTF-8 change the text of the bytes before them.
  return tokenizer_->decode(std::span(tokens_).subspan(last_), true);
}

std::string TextStream::add(std::int32_t token) {
  tokens_.push_back(token);
  std::string piece = waiting();
  if (piece.empty() || piece.ends_with("\xEF\xBF\xBD")) return {};
  tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(last_));
  last_ = tokens_.size();
  returned_ = tokenizer_->decode(tokens_, true);
  return piece;
}

std::string TextStream::finish() {
  std::string rest = waiting();
  *this = TextStream(*tokenizer_);
  return rest;
}

}  // namespace maestro
