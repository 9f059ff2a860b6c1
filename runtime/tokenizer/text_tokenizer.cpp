// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/text_tokenizer.hpp"

#include <utility>

#include "runtime/core/utf8.hpp"

namespace maestro {

namespace {

constexpr std::size_t piece_tokens = 4096;  // least number of tokens passed to the sink at a time

}  // namespace

/// The encoding of a text: passes its tokens on in pieces.
class TextTokenizer::Encoding {
 public:
  Encoding(const TextTokenizer& tokenizer, std::size_t text_bytes, bool begins, const Sink& sink)
      : tokenizer_(tokenizer),
        begins_(begins),
        cache_(tokenizer.caches_->take(text_bytes)),
        sink_(sink),
        add_word_([this](std::string_view word) {
          tokenizer_.parts_.model->encode(word, *cache_, tokens_);
          if (tokens_.size() >= piece_tokens) flush();
        }) {}

  ~Encoding() { tokenizer_.caches_->give_back(std::move(cache_)); }
  Encoding(const Encoding&) = delete;
  Encoding& operator=(const Encoding&) = delete;

  void add(std::string_view text) {
    tokenizer_.raw_.split(text, [&](std::int32_t token, std::size_t begin, std::size_t end) {
      if (token != AddedTokens::no_token) return add_token(token);
      const std::string_view part = text.substr(begin, end - begin);
      const Normalizer& normalizer = tokenizer_.parts_.normalizer;
      if (normalizer.empty()) return add_normalized(part, begins_ && begin == 0);
      add_normalized(normalizer.normalize(part), begins_ && begin == 0);
    });
    flush();
  }

 private:
  void add_normalized(std::string_view text, bool begins) {
    tokenizer_.normalized_.split(text, [&](std::int32_t token, std::size_t begin, std::size_t end) {
      if (token != AddedTokens::no_token) return add_token(token);
      tokenizer_.parts_.pre_tokenizer.split(text.substr(begin, end - begin), begins && begin == 0, add_word_);
    });
  }
  void add_token(std::int32_t token) {
    tokens_.push_back(token);
    if (tokens_.size() >= piece_tokens) flush();
  }
  void flush() {
    if (!tokens_.empty()) sink_(tokens_);
    tokens_.clear();
  }

  const TextTokenizer& tokenizer_;
  bool begins_;  // the document begins with this text
  std::unique_ptr<WordCache> cache_;
  const Sink& sink_;
  PreTokenizer::Emit add_word_;
  std::vector<std::int32_t> tokens_;
};

TextTokenizer::TextTokenizer(TextTokenizerParts parts) : parts_(std::move(parts)), special_(parts_.tokens.size()) {
  std::vector<AddedToken> of[2];
  std::vector<std::string> contents[2];
  for (const AddedToken& token : parts_.added) {
    special_[static_cast<std::size_t>(token.id)] = token.special;
    of[token.normalized].push_back(token);
    contents[token.normalized].push_back(token.normalized ? parts_.normalizer.normalize(token.content) : token.content);
  }
  raw_ = AddedTokens(std::move(of[0]), contents[0]);
  normalized_ = AddedTokens(std::move(of[1]), contents[1]);
}

void TextTokenizer::encode(std::string_view text, bool begins, const Sink& sink) const {
  if (valid_utf8_prefix(text) == text.size()) return Encoding(*this, text.size(), begins, sink).add(text);
  const std::string repaired = repaired_utf8(text);
  Encoding(*this, repaired.size(), begins, sink).add(repaired);
}

void TextTokenizer::encode(std::string_view text, const Sink& sink) const {
  encode(text, true, sink);
}

std::vector<std::int32_t> TextTokenizer::encode_after_special(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  encode(text, false,
         [&](std::span<const std::int32_t> piece) { tokens.insert(tokens.end(), piece.begin(), piece.end()); });
  return tokens;
}

std::vector<std::int32_t> TextTokenizer::encode_special(std::string_view text) const {
  std::vector<std::int32_t> tokens = parts_.before;
  encode(text, [&](std::span<const std::int32_t> piece) { tokens.insert(tokens.end(), piece.begin(), piece.end()); });
  tokens.insert(tokens.end(), parts_.behind.begin(), parts_.behind.end());
  return tokens;
}

void TextTokenizer::find_special(std::string_view text, const std::function<void(std::int32_t)>& sink) const {
  const auto pass_special = [&](std::int32_t token, std::size_t, std::size_t) {
    if (token != AddedTokens::no_token && special_[static_cast<std::size_t>(token)]) sink(token);
  };
  for (const AddedTokens* tokens : {&raw_, &normalized_}) tokens->split(text, pass_special);
}

std::string TextTokenizer::decode(std::span<const std::int32_t> tokens, bool skip_special) const {
  std::vector<std::string> pieces;
  pieces.reserve(tokens.size());
  for (const std::int32_t token : tokens) {
    const bool known = token >= 0 && token < vocabulary();
    if (known && skip_special && special_[static_cast<std::size_t>(token)]) continue;
    pieces.push_back(piece(token));
  }
  return parts_.decoder.decode(std::move(pieces));
}

std::string TextTokenizer::piece(std::int32_t token) const {
  if (token < 0 || token >= vocabulary()) return "\xEF\xBF\xBD";
  const std::string& found = parts_.tokens[static_cast<std::size_t>(token)];
  return found.empty() ? "\xEF\xBF\xBD" : found;
}

}  // namespace maestro
