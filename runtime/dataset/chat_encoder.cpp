// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/chat_encoder.hpp"

#include <algorithm>
#include <utility>

#include "runtime/core/printable.hpp"
#include "runtime/dataset/chat_review.hpp"
#include "runtime/dataset/kept_text.hpp"

namespace maestro {

namespace {

constexpr std::size_t shown_text = 24;  // bytes around a place in a text, for messages

Error wrong(std::string reason) {
  return {ErrorCode::invalid_argument, std::move(reason)};
}

template <class Range>
std::size_t common_prefix(const Range& left, const Range& right) {
  return static_cast<std::size_t>(std::ranges::mismatch(left, right).in1 - left.begin());
}

std::string end_of(std::string_view text) {
  return "\"" + printable(text.substr(text.size() - std::min(text.size(), shown_text))) + "\"";
}

bool begins_character(std::string_view text, std::size_t at) {
  return at >= text.size() || (static_cast<unsigned char>(text[at]) & 0xC0U) != 0x80U;
}

/// Returns the end of a text's common prefix, moved back to the end of a mark such as <|assistant|> or of white space,
/// if there is one after `first`: a single common letter belongs to the answer.
std::size_t end_of_marks(std::string_view text, std::size_t first, std::size_t common) {
  std::size_t at = common;
  while (at > first && std::string_view(">]|\n ").find(text[at - 1]) == std::string_view::npos) --at;
  if (at == first) at = common;
  while (!begins_character(text, at)) --at;
  return at;
}

/// Returns the end in `text` of the last message content, if the contents are found one after the other.
std::size_t end_of_contents(std::span<const ChatMessage> messages, std::string_view text) {
  std::size_t end = 0;
  for (const ChatMessage& message : messages) {
    const std::string_view content = trimmed(message.content);
    const std::size_t at = text.find(content, end);
    if (at != std::string_view::npos) end = at + content.size();
  }
  return end;
}

}  // namespace

/// The encoding of a conversation.
class ChatEncoder::Encoding {
 public:
  Encoding(const ChatEncoder& encoder, const Record& record, std::span<const ExpandedImage> images)
      : encoder_(encoder),
        record_(record),
        messages_(record.messages),
        images_(images),
        context_(encoder.options_.context) {
    context_.tools = record.tools;
    context_.variables = record.variables;
  }

  Status find_answers(const Record& record) {
    bool any = false;
    for (std::size_t at = 0; at < messages_.size(); ++at) {
      if (messages_[at].role != "assistant") continue;
      any = true;
      if (texts_of_answer(messages_[at]).empty()) return wrong(message_place(at) + " is an empty answer");
      if (std::ranges::find(record.unlearned, at) != record.unlearned.end()) continue;
      if (encoder_.options_.learned == LearnedAnswers::last) answers_.clear();
      answers_.push_back({at});
    }
    if (!answers_.empty()) return {};
    return wrong(std::string("the conversation contains no answer to learn: ") +
                 (any ? "the weight of each is 0" : "no message is from the assistant"));
  }
  Status render_answers() {
    for (LearnedAnswer& answer : answers_) {
      answer.prompt = encoder_.chat_->render_text(messages_.first(answer.message), context_, ChatEnd::prompt);
      answer.until = encoder_.chat_->render(messages_.first(answer.message + 1), context_, ChatEnd::none);
      if (const Status placed = check_places(answer); !placed) return placed;
      if (const Status found = find_begin(answer); !found) return found;
    }
    return {};
  }
  Result<std::vector<Document>> documents() {
    const std::string& whole = answers_.back().until.text;
    const bool joined = std::ranges::all_of(
        answers_, [&](const LearnedAnswer& answer) { return whole.starts_with(answer.until.text); });
    Result<std::vector<Document>> made = documents(joined);
    if (made && apart_) made = documents(false);
    for (std::size_t at = 0; made && encoder_.options_.images != nullptr && at < made->size(); ++at) {
      if (const Status unfolded = unfold((*made)[at]); !unfolded) return unfolded.error();
    }
    return made;
  }
  [[nodiscard]] const ChatContext& context() const { return context_; }
  [[nodiscard]] std::vector<LearnedAnswer>& answers() { return answers_; }
  void report(RowNotes& notes) const;

 private:
  [[nodiscard]] const Tokenizer& tokenizer() const { return *encoder_.tokenizer_; }
  [[nodiscard]] std::vector<std::int32_t> tokens_of(std::string_view text) const;
  [[nodiscard]] Status check_places(const LearnedAnswer& answer) const;
  Status unfold(Document& document) const;
  [[nodiscard]] std::size_t images_until(const LearnedAnswer& answer) const;
  Status find_begin(LearnedAnswer& answer) const;
  Result<std::vector<Document>> documents(bool joined);
  Status learn(LearnedAnswer& answer, Document& document);
  void mark(std::size_t begin, std::size_t end, Document& document) const;
  Status learn_end(LearnedAnswer& answer, Document& document, std::size_t end);
  [[nodiscard]] std::optional<std::int32_t> end_after(const LearnedAnswer& answer) const;

  const ChatEncoder& encoder_;
  const Record& record_;
  std::span<const ChatMessage> messages_;
  std::span<const ExpandedImage> images_;
  ChatContext context_;
  std::vector<LearnedAnswer> answers_;
  bool apart_ = false;  // an end must be appended to an answer before the last
};

std::size_t ChatEncoder::Encoding::images_until(const LearnedAnswer& answer) const {
  const auto after = std::ranges::upper_bound(record_.image_messages, answer.message);
  return static_cast<std::size_t>(after - record_.image_messages.begin());
}

Status ChatEncoder::Encoding::check_places(const LearnedAnswer& answer) const {
  if (encoder_.options_.images == nullptr) return {};
  const ImageExpander& expander = *encoder_.options_.images;
  const std::size_t images = images_until(answer), places = expander.places(answer.until.text);
  if (places == images) return {};
  return wrong("the template's text up to " + message_place(answer.message) + " has " + std::to_string(places) +
               " places " + expander.placeholders() + " for " + std::to_string(images) +
               " images; a text that spells it is not a place");
}

/// Returns the tokens of a text, with a single token for each run of image tokens (CE-7).
std::vector<std::int32_t> ChatEncoder::Encoding::tokens_of(std::string_view text) const {
  if (encoder_.options_.images == nullptr) return tokenizer().encode(text);
  return tokenizer().encode_text(encoder_.options_.images->insert(text, images_), encoder_.options_.begin_of_text);
}

/// Gives each run of image tokens its length.
Status ChatEncoder::Encoding::unfold(Document& document) const {
  const ImageExpander& expander = *encoder_.options_.images;
  const auto images = images_.first(document.images);
  const auto repeats = expander.repeats(document.tokens, images);
  const auto is_image = [&](std::int32_t token) { return expander.is_image_token(token); };
  if (!repeats) {
    std::size_t runs = 0;
    for (const ExpandedImage& image : images) runs += image.runs.size();
    return wrong("the conversation has " + std::to_string(std::ranges::count_if(document.tokens, is_image)) +
                 " runs of image tokens, but its images have " + std::to_string(runs) +
                 "; a text that spells the token is not an image" +
                 (expander.sound_token() ? ", and images and sounds stand in the order of the messages" : ""));
  }
  Document made;
  made.images = document.images;
  for (std::size_t at = 0; at < document.tokens.size(); ++at) {
    const bool image = is_image(document.tokens[at]);
    const auto count = static_cast<std::size_t>((*repeats)[at]);
    made.tokens.insert(made.tokens.end(), count, document.tokens[at]);
    made.learned.insert(made.learned.end(), count, image ? std::uint8_t{0} : document.learned[at]);
  }
  document = std::move(made);
  return {};
}

Status ChatEncoder::Encoding::find_begin(LearnedAnswer& answer) const {
  const std::string& text = answer.until.text;
  answer.begin = common_prefix(text, answer.prompt);
  if (encoder_.chat_->uses_generation()) {
    if (!answer.until.generated.empty() && answer.until.generated.back().end > answer.begin) return {};
    return wrong("the template's {% generation %} marks nothing of " + message_place(answer.message));
  }
  answer.differs = answer.begin < answer.prompt.size();
  if (!answer.differs) return {};
  const auto before = messages_.first(answer.message);
  std::size_t least = end_of_contents(before, text);
  try {
    least = std::max(least, common_prefix(text, encoder_.chat_->render_text(before, context_, ChatEnd::none)));
  } catch (const JobError&) {  // messages that a prompt must follow
  }
  const std::size_t shown = answer.begin - std::min(answer.begin, shown_text);
  answer.example = ": the prompt has \"" + printable(std::string_view(answer.prompt).substr(shown, 3 * shown_text)) +
                   "\", but the text has \"" + printable(std::string_view(text).substr(shown, 3 * shown_text)) + "\"";
  if (answer.begin < least) {
    return wrong("the template's prompt for " + message_place(answer.message) +
                 " differs from the conversation before that answer" + answer.example);
  }
  answer.begin = end_of_marks(text, least, answer.begin);
  return {};
}

Result<std::vector<Document>> ChatEncoder::Encoding::documents(bool joined) {
  std::vector<Document> documents;
  for (LearnedAnswer& answer : answers_) {
    answer.is_last = !joined || &answer == &answers_.back();
    if (documents.empty() || !joined) {
      Document& made = documents.emplace_back();
      const LearnedAnswer& last = joined ? answers_.back() : answer;
      made.tokens = tokens_of(last.until.text);
      made.images = images_until(last);
      made.learned.assign(made.tokens.size(), 0);
    }
    if (const Status learned = learn(answer, documents.back()); !learned) return learned.error();
    if (apart_ && joined) break;
  }
  return documents;
}

Status ChatEncoder::Encoding::learn(LearnedAnswer& answer, Document& document) {
  const std::string_view text = answer.until.text;
  const std::size_t end = answer.is_last ? document.tokens.size() : common_prefix(document.tokens, tokens_of(text));
  if (!encoder_.chat_->uses_generation()) {
    const std::size_t begin = common_prefix(document.tokens, tokens_of(text.substr(0, answer.begin)));
    mark(begin, end, document);
    return learn_end(answer, document, end);
  }
  std::size_t last = 0;
  for (const ByteRange& range : answer.until.generated) {
    if (range.end <= answer.begin) continue;
    const std::vector<std::int32_t> until = tokens_of(text.substr(0, range.end));
    last = common_prefix(document.tokens, until);
    last += last < until.size() && last < document.tokens.size() ? 1 : 0;  // the token across the end
    mark(common_prefix(document.tokens, tokens_of(text.substr(0, range.begin))), last, document);
  }
  return learn_end(answer, document, last);
}

void ChatEncoder::Encoding::mark(std::size_t begin, std::size_t end, Document& document) const {
  for (std::size_t at = begin; at < end; ++at) document.learned[at] = 1;
}

Status ChatEncoder::Encoding::learn_end(LearnedAnswer& answer, Document& document, std::size_t end) {
  if (encoder_.options_.ends.empty()) return {};
  for (std::size_t at = end; at > 0 && document.learned[at - 1] != 0; --at) {
    if (encoder_.ends_answer(document.tokens[at - 1])) return {};
  }
  if (end < document.tokens.size() && encoder_.ends_answer(document.tokens[end])) {
    document.learned[end] = 1;
    answer.end = document.tokens[end];
    return {};
  }
  const std::optional<std::int32_t> after = end_after(answer);
  if (after && answer.is_last) {
    document.tokens.push_back(*after);
    document.learned.push_back(1);
    answer.end = after;
    return {};
  }
  apart_ = after.has_value();
  if (apart_) return {};
  std::string expected;
  for (const std::int32_t token : encoder_.options_.ends) {
    expected += (expected.empty() ? "" : " or ") + printable(tokenizer().piece(token));
  }
  return wrong(message_place(answer.message) + " ends without " + expected +
               ", so that a model would never stop: the template ends it with " + end_of(answer.until.text) +
               "; name that end's token as data.end_of_turn (--end-of-turn)");
}

std::optional<std::int32_t> ChatEncoder::Encoding::end_after(const LearnedAnswer& answer) const {
  std::optional<std::int32_t> token;
  if (messages_[answer.message].fields.find("\"tool_calls\"") != std::string::npos) {
    token = encoder_.next_turn_token(messages_.first(answer.message + 1), {"tool", "c"}, context_);
  }
  if (!token) token = encoder_.next_user_turn_;
  return token ? token : encoder_.options_.end;
}

void ChatEncoder::Encoding::report(RowNotes& notes) const {
  notes.count_answers(answers_.size());
  for (const LearnedAnswer& answer : answers_) {
    const std::string place = message_place(answer.message);
    if (answer.differs) notes.add(RowNote::prompt_differs, "", place, answer.example);
    if (!answer.end) continue;
    const bool of_next = answer.end != encoder_.options_.end || answer.end == encoder_.next_user_turn_;
    notes.add(of_next ? RowNote::next_turn_ends : RowNote::end_appended, tokenizer().piece(*answer.end), place);
  }
}

ChatEncoder::ChatEncoder(const Tokenizer& tokenizer, const ChatTemplate& chat, ChatEncoderOptions options)
    : tokenizer_(&tokenizer), chat_(&chat), options_(std::move(options)) {
  if (options_.ends.empty()) return;
  const std::vector<ChatMessage> turns{{"user", "a"}, {"assistant", "b"}};
  next_user_turn_ = next_turn_token(turns, {"user", "c"}, options_.context);
}

bool ChatEncoder::ends_answer(std::int32_t token) const {
  return std::ranges::find(options_.ends, token) != options_.ends.end();
}

std::optional<std::int32_t> ChatEncoder::next_turn_token(std::span<const ChatMessage> messages, const ChatMessage& next,
                                                         const ChatContext& context) const {
  std::vector<ChatMessage> longer(messages.begin(), messages.end());
  longer.push_back(next);
  try {
    const std::string before = chat_->render_text(messages, context, ChatEnd::none);
    const std::string after = chat_->render_text(longer, context, ChatEnd::none);
    if (!after.starts_with(before)) return std::nullopt;
    const std::vector<std::int32_t> tokens = tokenizer_->encode(after.substr(before.size()));
    if (tokens.empty() || !ends_answer(tokens.front())) return std::nullopt;
    return tokens.front();
  } catch (const JobError&) {  // the template refuses such a turn
    return std::nullopt;
  }
}

Result<std::vector<Document>> ChatEncoder::encode_prompt(const Record& record) const {
  const auto last = std::find_if(record.messages.rbegin(), record.messages.rend(),
                                 [](const ChatMessage& message) { return message.role == "user"; });
  if (last == record.messages.rend()) return wrong("the conversation contains no prompt: no message is from a user");
  ChatContext context = options_.context;
  context.tools = record.tools;
  context.variables = record.variables;
  const auto before = std::span(record.messages).first(static_cast<std::size_t>(record.messages.rend() - last));
  Document document;
  document.tokens = tokenizer_->encode(chat_->render_text(before, context, ChatEnd::prompt));
  document.tokens.push_back(document.tokens.back());
  document.learned.assign(document.tokens.size(), 0);
  return std::vector<Document>{std::move(document)};
}

Result<std::vector<Document>> ChatEncoder::encode(const Record& record, RowNotes& notes,
                                                  std::span<const ExpandedImage> images) const {
  try {
    if (options_.learned == LearnedAnswers::none) return encode_prompt(record);
    Encoding encoding(*this, record, images);
    if (const Status found = encoding.find_answers(record); !found) return found.error();
    if (const Status rendered = encoding.render_answers(); !rendered) return rendered.error();
    const ChatReview review(*tokenizer_, *chat_, record, encoding.context());
    if (const Status kept = review.measure(encoding.answers(), notes); !kept) return kept.error();
    Result<std::vector<Document>> documents = encoding.documents();
    if (!documents) return documents;
    encoding.report(notes);
    review.report(encoding.answers(), options_, notes);
    return documents;
  } catch (const JobError& problem) {  // from the template
    return Error{problem.code(), problem.what()};
  }
}

}  // namespace maestro
