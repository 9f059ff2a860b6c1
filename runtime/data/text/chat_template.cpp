// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/text/chat_template.hpp"

#include <algorithm>

#include "runtime/data/corpus.hpp"

namespace maestro {

namespace {

/// Appends tokens and marks the tokens to be learned.
class ChatWriter {
 public:
  /// Numbers of tokens and images up to the end of an answer.
  struct Turn {
    std::size_t end;
    std::size_t pictures;
  };

  ChatWriter(std::span<const std::int64_t> patches, const Tokenizer& tokenizer, bool begin)
      : patches_(patches), tokenizer_(tokenizer), begin_(begin) {}

  void system(std::string_view text) {
    if (!text.empty()) text_.append(text).append("\n");
  }
  void question(std::string_view text) {
    text_.append("USER: ");
    for (auto at = text.find(image_placeholder); at != text.npos; at = text.find(image_placeholder)) {
      text_.append(text.substr(0, at));
      picture();
      text.remove_prefix(at + image_placeholder.size());
    }
    text_.append(text).append("\nASSISTANT: ");
    if (turns.empty()) first_pictures_end = pictures_end_;
  }
  void answer(std::string_view text) {
    const std::size_t border = text_.size();
    write(text_.append(text), border);
    append(end_of_turn(tokenizer_), 1, true);
    turns.push_back({tokens.size(), pictures_});
  }

  std::vector<std::int32_t> tokens;
  std::vector<char> learned;
  std::vector<Turn> turns;
  std::size_t first_pictures_end = 0;  ///< position after the last image of the first question

 private:
  /// Returns the tokens of a text that follows the tokens so far (LT-1).
  [[nodiscard]] std::vector<std::int32_t> encoded(std::string_view text) const {
    return tokens.empty() ? tokenizer_.encode_text(text, begin_) : tokenizer_.encode_after_special(text);
  }
  /// Appends the tokens of the text since the last special token; the answer begins at `border` (LT-2).
  void write(std::string_view text, std::size_t border) {
    const std::vector<std::int32_t> all = encoded(text);
    const std::vector<std::int32_t> before = encoded(text.substr(0, border));
    const auto known = std::ranges::mismatch(all, before).in1;
    tokens.insert(tokens.end(), all.begin(), known);
    learned.resize(tokens.size(), 0);
    tokens.insert(tokens.end(), known, all.end());
    learned.resize(tokens.size(), 1);
    text_.clear();
  }
  void append(std::int32_t token, std::size_t count, bool learn) {
    tokens.insert(tokens.end(), count, token);
    learned.resize(tokens.size(), learn ? 1 : 0);
  }
  void picture() {
    const std::vector<std::int32_t> before = encoded(text_);
    tokens.insert(tokens.end(), before.begin(), before.end());
    text_.clear();
    append(image_token, static_cast<std::size_t>(patches_[pictures_++]), false);
    pictures_end_ = tokens.size();
  }

  std::span<const std::int64_t> patches_;
  const Tokenizer& tokenizer_;
  bool begin_;
  std::string text_;  // since the last special token
  std::size_t pictures_ = 0;
  std::size_t pictures_end_ = 0;
};

/// Returns the tokens and targets at the first `kept` positions.
ChatTokens first_positions(const ChatWriter& writer, std::size_t kept) {
  ChatTokens out;
  out.tokens.assign(writer.tokens.begin(), writer.tokens.begin() + static_cast<std::ptrdiff_t>(kept));
  out.targets.assign(kept, ignored_target);
  for (std::size_t at = 0; at < kept; ++at) {
    if (writer.learned[at + 1] == 0) continue;
    out.targets[at] = writer.tokens[at + 1];
    ++out.learned;
  }
  out.prompt = static_cast<std::size_t>(std::ranges::find(writer.learned, 1) - writer.learned.begin());
  return out;
}

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

}  // namespace

std::int32_t end_of_turn(const Tokenizer& tokenizer) {
  return tokenizer.end_of_text().value_or(static_cast<std::int32_t>(tokenizer.vocabulary()));
}

Result<ChatTokens> chat_tokens(const Conversation& conversation, std::span<const std::int64_t> patches,
                               const Tokenizer& tokenizer, std::int64_t sequence, bool begin) {
  ChatWriter writer(patches, tokenizer, begin);
  writer.system(conversation.system);
  for (std::size_t turn = 0; turn + 1 < conversation.turns.size(); turn += 2) {
    writer.question(conversation.turns[turn]);
    writer.answer(conversation.turns[turn + 1]);
  }
  // The last token is a target only.
  const auto fits = [&](const ChatWriter::Turn& turn) { return turn.end - 1 <= static_cast<std::size_t>(sequence); };
  const auto whole = static_cast<std::size_t>(std::ranges::partition_point(writer.turns, fits) - writer.turns.begin());
  const ChatWriter::Turn last = writer.turns[std::max<std::size_t>(whole, 1) - 1];
  const std::string beyond = "beyond data.sequence = " + std::to_string(sequence);
  if (whole == 0 && writer.first_pictures_end > static_cast<std::size_t>(sequence)) {
    return Error{ErrorCode::invalid_argument,
                 "its images reach position " + std::to_string(writer.first_pictures_end) + ", " + beyond};
  }
  ChatTokens out = first_positions(writer, std::min(last.end - 1, static_cast<std::size_t>(sequence)));
  out.turns = 2 * std::max<std::size_t>(whole, 1);
  out.pictures = last.pictures;
  out.ended = whole > 0;
  if (out.learned == 0) {
    return Error{ErrorCode::invalid_argument,
                 "its answer starts at position " + std::to_string(out.prompt + 1) + ", " + beyond};
  }
  return out;
}

std::string chat_text(std::span<const std::int32_t> tokens, const Tokenizer& tokenizer) {
  std::vector<std::int32_t> text(tokens.begin(), tokens.end());
  std::erase_if(text, [&](std::int32_t token) { return token == image_token || token == end_of_turn(tokenizer); });
  return tokenizer.decode(text);
}

std::string chat_answer(std::span<const std::int32_t> prompt, std::span<const std::int32_t> written,
                        const Tokenizer& tokenizer) {
  std::vector<std::int32_t> all(prompt.begin(), prompt.end());
  all.insert(all.end(), written.begin(), written.end());
  const std::string before = chat_text(prompt, tokenizer), text = chat_text(all, tokenizer);
  std::string_view answer = std::string_view(text).substr(std::min(before.size(), text.size()));
  // A first token such as " Yes" contains the space that otherwise ends the prompt.
  if (!before.ends_with(' ') && answer.starts_with(' ')) answer.remove_prefix(1);
  return std::string(answer);
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
