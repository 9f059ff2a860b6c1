// SPDX-License-Identifier: Apache-2.0
#include "runtime/records/chat_encoder.hpp"

#include <algorithm>

#include "runtime/core/printable.hpp"

namespace maestro {

namespace {

Error wrong(std::string reason) {
  return {ErrorCode::invalid_argument, std::move(reason)};
}

std::string place_of(std::size_t message) {
  return "messages[" + std::to_string(message) + "]";
}

std::size_t common_prefix(std::span<const std::int32_t> left, std::span<const std::int32_t> right) {
  return static_cast<std::size_t>(std::ranges::mismatch(left, right).in1 - left.begin());
}

}  // namespace

ChatEncoder::ChatEncoder(const Tokenizer& tokenizer, const ChatTemplate& chat, ChatEncoderOptions options)
    : tokenizer_(&tokenizer), chat_(&chat), options_(std::move(options)) {}

Result<std::vector<ChatEncoder::Answer>> ChatEncoder::answers_of(std::span<const ChatMessage> messages) const {
  std::vector<Answer> answers;
  for (std::size_t at = 0; at < messages.size(); ++at) {
    if (messages[at].role != "assistant") continue;
    if (messages[at].content.empty()) return wrong(place_of(at) + " is an empty answer");
    if (options_.learned == LearnedAnswers::last) answers.clear();
    answers.push_back({at, "", "", false});
  }
  if (answers.empty()) return wrong("the conversation has no answer to learn: no message is from the assistant");
  for (Answer& answer : answers) {
    answer.prompt = chat_->render_text(messages.first(answer.message), options_.context, ChatEnd::prompt);
    answer.until = chat_->render_text(messages.first(answer.message + 1), options_.context, ChatEnd::none);
    if (!answer.until.starts_with(answer.prompt)) {
      return wrong("the template's prompt for " + place_of(answer.message) +
                   " is no beginning of the conversation with that answer");
    }
  }
  return answers;
}

Result<std::vector<Document>> ChatEncoder::encode(std::span<const ChatMessage> messages) const {
  try {
    Result<std::vector<Answer>> answers = answers_of(messages);
    if (!answers) return answers.error();
    const std::string& whole = answers->back().until;
    const bool prefixes =
        std::ranges::all_of(*answers, [&](const Answer& answer) { return whole.starts_with(answer.until); });
    std::vector<Document> documents;
    for (Answer& answer : *answers) {
      answer.is_last = !prefixes || &answer == &answers->back();
      if (documents.empty() || !prefixes) {
        Document& made = documents.emplace_back();
        made.tokens = tokenizer_->encode(prefixes ? whole : answer.until);
        made.learned.assign(made.tokens.size(), 0);
      }
      if (const Status learned = learn(answer, documents.back()); !learned) return learned.error();
    }
    return documents;
  } catch (const JobError& problem) {  // of the template
    return Error{problem.code(), problem.what()};
  }
}

Status ChatEncoder::learn(const Answer& answer, Document& document) const {
  const std::size_t begin = common_prefix(document.tokens, tokenizer_->encode(answer.prompt));
  const std::size_t end =
      answer.is_last ? document.tokens.size() : common_prefix(document.tokens, tokenizer_->encode(answer.until));
  for (std::size_t at = begin; at < end; ++at) document.learned[at] = 1;
  const auto learned = std::span(document.tokens).subspan(begin, std::max(begin, end) - begin);
  const auto ends = [&](std::int32_t token) { return std::ranges::find(options_.ends, token) != options_.ends.end(); };
  if (options_.ends.empty() || std::ranges::any_of(learned, ends)) return {};
  std::string expected;
  for (const std::int32_t token : options_.ends) {
    expected += (expected.empty() ? "" : " or ") + printable(tokenizer_->piece(token));
  }
  return wrong(
      place_of(answer.message) + " ends without " + expected +
      ", so that a model would never stop: the template ends it with \"" +
      printable(
          std::string_view(answer.until).substr(answer.until.size() - std::min<std::size_t>(answer.until.size(), 24))) +
      "\"; name the token of that end as data.end_of_turn (--end-of-turn)");
}

}  // namespace maestro
