// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/document_encoder.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/core/input_file.hpp"
#include "runtime/core/iso_time.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/dataset/class_template.hpp"
#include "runtime/dataset/conversation_template.hpp"
#include "runtime/dataset/reserved_tokens.hpp"
#include "runtime/model/hf_generation.hpp"
#include "runtime/tokenizer/tokenizer_config.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr const char* chatml =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// Returns the folder of a tokenizer's files; empty for "bytes".
fs::path folder_of(const std::string& tokenizer) {
  if (tokenizer.empty() || tokenizer == "bytes") return {};
  std::error_code ignored;
  return fs::is_directory(tokenizer, ignored) ? fs::path(tokenizer) : fs::path(tokenizer).parent_path();
}

TokenizerConfig config_of(const std::string& tokenizer) {
  const fs::path folder = folder_of(tokenizer);
  return folder.empty() ? TokenizerConfig() : read_tokenizer_config(folder).value_or_throw();
}

}  // namespace

DocumentEncoder::DocumentEncoder(const PrepareOptions& options)
    : tokenizer_(make_tokenizer(options.tokenizer)), begin_of_text_(options.begin_of_text), learned_(options.learned) {
  if (options.scaled) {
    auto tokens = std::make_unique<ReservedTokens>(std::move(tokenizer_));
    images_ = image_model_of(*options.scaled, *tokens);
    tokenizer_ = std::move(tokens);
  } else if (!options.processor.empty()) {
    images_ = read_image_model(options.processor, *tokenizer_, options.resample_order).value_or_throw();
  }
  if (images_ && learned_ == LearnedAnswers::none) {
    throw JobError("learn = none keeps prompts of texts, but these data have images");
  }
  open_template(options);
}

void DocumentEncoder::open_template(const PrepareOptions& options) {
  TokenizerConfig config = config_of(options.tokenizer);
  if (options.scaled) {
    config.eos_token = tokenizer_->piece(*tokenizer_->end_of_text());
  } else if (images_ && options.processor != options.tokenizer) {
    const TokenizerConfig own = read_tokenizer_config(options.processor).value_or_throw();
    config.chat_template = own.chat_template;
    config.template_file = own.template_file;
  }
  if (images_ && !options.scaled) use_class_template(options.processor, config);
  std::string source;
  std::string file;
  if (options.chat_template == "auto" && options.scaled) {
    source = conversation_template;
    file = "conversation template";
  } else if (options.chat_template == "auto") {
    source = config.chat_template;
    file = config.template_file;
    missing_template_ = (images_ ? "the processor " + printable(options.processor.string())
                                 : "the tokenizer " + printable(options.tokenizer)) +
                        " has no chat template (in chat_template.jinja or tokenizer_config.json); name a file, or "
                        "chatml, as data.template (--template)";
  } else if (options.chat_template == "chatml") {
    source = chatml;
    file = "chatml";
  } else if (options.chat_template == "none") {
    missing_template_ = "the template none makes text from prompts with their completions, but not from conversations";
  } else {
    file = options.chat_template;
    source = read_text(file).value_or_throw();
  }
  if (source.empty() && images_ && images_->mask == ImageMask::prefix) {
    prefix_.emplace(*tokenizer_, images_->expander, config.bos_token, options.learned);
  }
  if (source.empty()) return;
  template_ = std::make_unique<ChatTemplate>(source, file);
  ChatEncoderOptions chat{context_of(config, options), options.learned, ends(options), std::nullopt, source};
  if (images_) {
    chat.images = &images_->expander;
    chat.end = tokenizer_->end_of_text();  // LLaVA's template writes no end
    if (options.scaled) chat.begin_of_text = begin_of_text_;
    parts_ = takes_parts(chat.context);
  }
  if (!options.end_of_turn.empty()) chat.end = chat.ends.front();
  chat_.emplace(*tokenizer_, *template_, std::move(chat));
  if (template_->uses_generation()) template_settings_["learned"] = "the parts that the template marks (generation)";
}

ChatContext DocumentEncoder::context_of(const TokenizerConfig& config, const PrepareOptions& options) {
  ChatContext context{.bos_token = config.bos_token, .eos_token = config.eos_token};
  const auto day = options.date.empty() ? local_day() : parse_iso_day(options.date);
  if (!day) {
    throw JobError("the date \"" + printable(options.date) + "\" (data.date, --date) is not a day; write it as " +
                   iso_day(local_day()));
  }
  if (!template_->uses_date()) return context;
  context.date = *day;
  template_settings_["date"] = iso_day(*day);
  return context;
}

std::vector<std::int32_t> DocumentEncoder::ends(const PrepareOptions& options) const {
  if (!options.end_of_turn.empty()) {
    std::vector<std::int32_t> tokens = tokenizer_->encode(options.end_of_turn);
    if (tokens.size() == 1) return tokens;
    throw JobError("the end of a turn \"" + printable(options.end_of_turn) + "\" is " + std::to_string(tokens.size()) +
                   " tokens of the tokenizer; it must be one");
  }
  std::vector<std::int32_t> ends;
  if (const fs::path folder = folder_of(options.tokenizer); !folder.empty()) {
    ends = read_stop_tokens(folder).value_or_throw();
  }
  const std::optional<std::int32_t> end = tokenizer_->end_of_text();
  if (end && std::ranges::find(ends, *end) == ends.end()) ends.push_back(*end);
  return ends;
}

Status DocumentEncoder::takes_conversations(bool completion) const {
  if (chat_ || prefix_ || completion) return {};
  return Error{ErrorCode::invalid_argument, missing_template_};
}

Result<std::vector<Document>> DocumentEncoder::encode(const Record& record, RowNotes& notes,
                                                      std::span<const ImagePlan> images) const {
  if (learned_ == LearnedAnswers::none && (record.messages.empty() || !chat_)) {
    return Error{ErrorCode::invalid_argument, record.messages.empty()
                                                  ? "a text is not a conversation, whose prompt learn = none keeps"
                                                  : "learn = none takes a chat template, which begins an answer"};
  }
  if (record.messages.empty()) return std::vector<Document>{text_document(record)};
  if (images_) return encode_images(record, notes, images);
  if (chat_) return chat_->encode(record, notes);
  if (const Status takes = takes_conversations(record.completion); !takes) return takes.error();
  Result<Document> document = completion_document(record);
  if (!document) return document.error();
  return std::vector<Document>{*std::move(document)};
}

bool DocumentEncoder::takes_parts(const ChatContext& context) const {
  constexpr const char* probe = "maestro";
  const nlohmann::json part{{"type", "text"}, {"text", probe}};
  const nlohmann::json fields{{"content", nlohmann::json::array({part})}};
  try {
    const std::vector<ChatMessage> messages{{"user", probe, fields.dump()}};
    const std::string text = template_->render_text(messages, context, ChatEnd::none);
    return text.find(probe) != text.npos && text.find("'type'") == text.npos;
  } catch (const JobError&) {  // the template adds the content to a text
    return false;
  }
}

Result<std::vector<Document>> DocumentEncoder::encode_images(const Record& record, RowNotes& notes,
                                                             std::span<const ImagePlan> images) const {
  if (!chat_ && !prefix_) return Error{ErrorCode::invalid_argument, missing_template_};
  std::vector<ExpandedImage> expanded;
  for (const ImagePlan& plan : images) {
    Result<ExpandedImage> image = images_->expander.expand(plan);
    if (!image) return image.error();
    expanded.push_back(*std::move(image));
  }
  if (prefix_) return prefix_->encode(record, notes, expanded);
  if (parts_) return chat_->encode(record, notes, expanded);
  Record texts;
  texts.messages = record.messages;
  texts.tools = record.tools;
  texts.variables = record.variables;
  texts.unlearned = record.unlearned;
  texts.image_messages = record.image_messages;
  for (ChatMessage& message : texts.messages) {
    if (message.fields.empty()) continue;
    nlohmann::ordered_json fields = nlohmann::ordered_json::parse(message.fields);
    const auto content = fields.find("content");
    if (content == fields.end() || !content->is_array()) continue;
    message.content.clear();
    for (const auto& part : *content) {
      const Media media = images_->processor.media();
      const auto medium = std::ranges::find(media, part["type"].get<std::string>(), &Medium::type);
      message.content += medium != media.end() ? images_->expander.placeholder(medium->modality) + "\n"
                                               : part["text"].get<std::string>();
    }
    fields.erase("content");
    message.fields = fields.empty() ? "" : fields.dump();
  }
  return chat_->encode(texts, notes, expanded);
}

Document DocumentEncoder::text_document(const Record& record) const {
  Document document{tokenizer_->encode_text(record.text, begin_of_text_ && !record.continued), {}};
  const std::optional<std::int32_t> end = tokenizer_->end_of_text();
  if (end && !record.continues) document.tokens.push_back(*end);
  return document;
}

Result<Document> DocumentEncoder::completion_document(const Record& record) const {
  const std::string& prompt = record.messages.front().content;
  const std::string& completion = record.messages.back().content;
  if (completion.empty()) return Error{ErrorCode::invalid_argument, "the completion is empty"};
  Document document{tokenizer_->encode_text(prompt + completion, begin_of_text_), {}};
  const std::vector<std::int32_t> before = tokenizer_->encode_text(prompt, begin_of_text_);
  const auto first = std::ranges::mismatch(document.tokens, before).in1 - document.tokens.begin();
  if (const std::optional<std::int32_t> end = tokenizer_->end_of_text()) document.tokens.push_back(*end);
  document.learned.assign(document.tokens.size(), 1);
  std::fill_n(document.learned.begin(), first, std::uint8_t{0});
  return document;
}

}  // namespace maestro
