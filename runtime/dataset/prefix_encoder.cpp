// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/prefix_encoder.hpp"

#include <algorithm>

#include "runtime/core/printable.hpp"
#include "runtime/dataset/chat_review.hpp"
#include "runtime/dataset/kept_text.hpp"

namespace maestro {

namespace {

Error refused(const std::string& problem) {
  return {ErrorCode::invalid_argument, problem};
}

/// Checks that questions and answers take turns, from a question on to an answer.
Status check_turns(std::span<const ChatMessage> messages) {
  for (std::size_t at = 0; at < messages.size(); ++at) {
    const char* expected = at % 2 == 0 ? "user" : "assistant";
    if (messages[at].role == expected) continue;
    return refused(message_place(at) + " has the role \"" + printable(messages[at].role) +
                   "\", but this model takes a question (" + "user) and its answer (assistant) in turn");
  }
  if (messages.size() % 2 == 0) return {};
  return refused(message_place(messages.size() - 1) + " is a question without an answer");
}

}  // namespace

PrefixEncoder::PrefixEncoder(const Tokenizer& tokenizer, const ImageExpander& images, std::string begin_of_text,
                             LearnedAnswers learned)
    : tokenizer_(&tokenizer), images_(&images), begin_of_text_(std::move(begin_of_text)), learned_(learned) {
  if (begin_of_text_.empty()) throw JobError("tokenizer_config.json: bos_token: the model's prompts need this token");
  if (!tokenizer.end_of_text()) throw JobError("tokenizer_config.json: eos_token: the model's answers need this token");
}

Result<std::vector<std::int32_t>> PrefixEncoder::prefix(std::string_view question,
                                                        std::span<const ExpandedImage> images) const {
  std::string places;
  for (std::size_t image = 0; image < images.size(); ++image) places += images_->placeholder();
  return images_->encode(places + begin_of_text_ + std::string(question) + "\n", images, *tokenizer_, false);
}

Result<std::vector<Document>> PrefixEncoder::encode(const Record& record, RowNotes& notes,
                                                    std::span<const ExpandedImage> images) const {
  if (const Status turns = check_turns(record.messages); !turns) return turns.error();
  std::vector<Document> documents;
  const std::size_t first = learned_ == LearnedAnswers::last ? record.messages.size() - 2 : 0;
  for (std::size_t question = first; question + 1 < record.messages.size(); question += 2) {
    const std::string& answer = record.messages[question + 1].content;
    const bool unlearned = std::ranges::find(record.unlearned, question + 1) != record.unlearned.end();
    if (answer.empty()) return refused(message_place(question + 1) + " is an empty answer");
    if (unlearned) continue;
    Document& made = documents.emplace_back();
    made.images = static_cast<std::size_t>(
        std::ranges::count_if(record.image_messages, [&](std::size_t message) { return message <= question; }));
    Result<std::vector<std::int32_t>> tokens =
        prefix(trimmed(record.messages[question].content), images.first(made.images));
    if (!tokens) return refused(message_place(question) + ": " + tokens.error().message);
    made.tokens = *std::move(tokens);
    made.learned.assign(made.tokens.size(), 0);
    const std::vector<std::int32_t> suffix = tokenizer_->encode(answer);
    made.tokens.insert(made.tokens.end(), suffix.begin(), suffix.end());
    made.tokens.push_back(*tokenizer_->end_of_text());
    made.learned.resize(made.tokens.size(), 1);
  }
  if (documents.empty()) return refused("no answer is to be learned");
  notes.count_answers(documents.size());
  return documents;
}

}  // namespace maestro
