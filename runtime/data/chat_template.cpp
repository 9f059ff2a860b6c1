// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/chat_template.hpp"

#include <algorithm>

#include "runtime/data/corpus.hpp"

namespace maestro {

namespace {

/// Appends tokens and marks those to be learned.
class ChatWriter {
 public:
  ChatWriter(std::span<const std::int64_t> patches, const Tokenizer& tokenizer)
      : patches_(patches), tokenizer_(tokenizer) {}

  void question(std::string_view text) {
    std::string before = "USER: ";  // text between pictures is encoded as a whole
    for (auto at = text.find(image_placeholder); at != text.npos; at = text.find(image_placeholder)) {
      write(before.append(text.substr(0, at)), false);
      before.clear();
      picture();
      text.remove_prefix(at + image_placeholder.size());
    }
    write(before.append(text).append("\nASSISTANT: "), false);
  }
  void answer(std::string_view text) {
    write(text, true);
    append(end_of_turn(tokenizer_), 1, true);
  }

  std::vector<std::int32_t> tokens;
  std::vector<char> learned;
  std::size_t pictures_end = 0;  ///< the position after the last picture

 private:
  void write(std::string_view text, bool learn) {
    tokenizer_.encode(
        text, [&](std::span<const std::int32_t> piece) { tokens.insert(tokens.end(), piece.begin(), piece.end()); });
    learned.resize(tokens.size(), learn ? 1 : 0);
  }
  void append(std::int32_t token, std::size_t count, bool learn) {
    tokens.insert(tokens.end(), count, token);
    learned.resize(tokens.size(), learn ? 1 : 0);
  }
  void picture() {
    append(image_token, static_cast<std::size_t>(patches_[pictures_++]), false);
    pictures_end = tokens.size();
  }

  std::span<const std::int64_t> patches_;
  const Tokenizer& tokenizer_;
  std::size_t pictures_ = 0;
};

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

}  // namespace

std::int32_t end_of_turn(const Tokenizer& tokenizer) {
  return tokenizer.end_of_text().value_or(static_cast<std::int32_t>(tokenizer.vocabulary()));
}

Result<ChatTokens> chat_tokens(const Conversation& conversation, std::span<const std::int64_t> patches,
                               const Tokenizer& tokenizer, std::int64_t sequence) {
  ChatWriter writer(patches, tokenizer);
  for (std::size_t turn = 0; turn < conversation.turns.size(); ++turn) {
    if (turn % 2 == 0) {
      writer.question(conversation.turns[turn]);
    } else {
      writer.answer(conversation.turns[turn]);
    }
  }
  const std::size_t all = writer.tokens.size() - 1;  // the last token is a target only
  const std::size_t kept = std::min(all, static_cast<std::size_t>(sequence));
  const std::string beyond = "beyond data.sequence = " + std::to_string(sequence);
  if (writer.pictures_end > kept) {
    return Error{ErrorCode::invalid_argument,
                 "its pictures reach position " + std::to_string(writer.pictures_end) + ", " + beyond};
  }
  ChatTokens out;
  out.tokens.assign(writer.tokens.begin(), writer.tokens.begin() + static_cast<std::ptrdiff_t>(kept));
  out.targets.assign(kept, ignored_target);
  for (std::size_t at = 0; at < kept; ++at) {
    if (writer.learned[at + 1] == 0) continue;
    out.targets[at] = writer.tokens[at + 1];
    ++out.learned;
  }
  out.cut = static_cast<std::int64_t>(all - kept);
  if (out.learned == 0) {
    const auto first = std::ranges::find(writer.learned, 1) - writer.learned.begin();
    return Error{ErrorCode::invalid_argument,
                 "its answer starts at position " + std::to_string(first + 1) + ", " + beyond};
  }
  return out;
}

std::vector<std::int32_t> chat_prompt(const Conversation& conversation, std::span<const std::int64_t> patches,
                                      const Tokenizer& tokenizer) {
  ChatWriter writer(patches, tokenizer);
  writer.question(conversation.turns.front());
  return std::move(writer.tokens);
}

std::string chat_text(std::span<const std::int32_t> tokens, const Tokenizer& tokenizer) {
  std::vector<std::int32_t> text(tokens.begin(), tokens.end());
  std::erase_if(text, [&](std::int32_t token) { return token == image_token || token == end_of_turn(tokenizer); });
  return tokenizer.decode(text);
}

std::string chat_question(const Conversation& conversation) {
  std::string text = conversation.turns.front();
  for (auto at = text.find(image_placeholder); at != text.npos; at = text.find(image_placeholder)) {
    std::size_t end = at + image_placeholder.size();
    while (end < text.size() && is_space(text[end])) ++end;
    text.erase(at, end - at);
  }
  while (!text.empty() && is_space(text.back())) text.pop_back();
  return text;
}

}  // namespace maestro
