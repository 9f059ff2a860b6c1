// SPDX-License-Identifier: Apache-2.0
// `maestro generate FOLDER`: text that continues prompts.
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "apps/maestro/commands.hpp"
#include "apps/maestro/models/json_lines.hpp"
#include "apps/maestro/models/seen_images.hpp"
#include "apps/maestro/number_options.hpp"
#include "runtime/chat/chat_template.hpp"
#include "runtime/core/dtype.hpp"
#include "runtime/core/hub_cache.hpp"
#include "runtime/core/iso_time.hpp"
#include "runtime/core/utf8.hpp"
#include "runtime/dataset/class_template.hpp"
#include "runtime/model/hf_generation.hpp"
#include "runtime/observe/printed_line.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "runtime/ops/cpu/thread.hpp"
#include "runtime/tokenizer/text_stream.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "runtime/tokenizer/tokenizer_config.hpp"
#include "sections/decoder/completions.hpp"

namespace maestro {

namespace {

struct GenerateArguments {
  std::string folder;
  std::string memory;     ///< folder of the memory that the model reads; empty: none
  std::string tokenizer;  ///< empty: the folder's
  std::vector<std::string> prompts;
  std::string lines;                          ///< a file
  std::vector<std::filesystem::path> images;  ///< images of every prompt
  std::vector<std::filesystem::path> sounds;  ///< sounds of every prompt
  std::optional<double> temperature;          ///< absent: as generation_config.json has it, like the two below
  std::optional<std::int64_t> top_k;
  std::optional<double> top_p;
  std::uint64_t seed = 0;
  std::int64_t max_tokens = 256;
  std::int64_t slots = 8;
  std::string precision = "fp32";
  bool chat = false;
  bool no_begin_of_text = false;
  bool json = false;
  bool log_probabilities = false;
};

/// Writes completions to standard output in the order of their prompts: lines of JSON, or texts while they grow.
class Printer {
 public:
  Printer(const Tokenizer& tokenizer, const GenerateArguments& arguments)
      : tokenizer_(&tokenizer), arguments_(&arguments), stream_(tokenizer) {}

  /// Writes what is new.
  void show(std::span<const Completion> all) {
    for (; at_ < all.size(); ++at_) {
      const Completion& completion = all[at_];
      if (!arguments_->json) add(completion.tokens);
      if (!completion.finish) return;
      finish(completion);
    }
  }

 private:
  void add(std::span<const std::int32_t> tokens) {
    for (; written_ < tokens.size(); ++written_) write(stream_.add(tokens[written_]));
  }
  void finish(const Completion& completion) {
    if (!arguments_->json) write(stream_.finish() + "\n");
    written_ = 0;
    stream_ = TextStream(*tokenizer_);
    if (!arguments_->json) return;
    nlohmann::ordered_json line{{"ids", completion.tokens}, {"text", tokenizer_->decode(completion.tokens, true)}};
    if (arguments_->log_probabilities) {
      const std::span drawn = std::span(completion.log_probabilities).first(completion.tokens.size());
      line["log_probabilities"] = std::vector<float>(drawn.begin(), drawn.end());
    }
    line["finish"] = completion.finish == FinishReason::stop ? "stop" : "length";
    std::cout << line.dump() << std::endl;
    check();
  }
  static void write(const std::string& text) {
    print_foreign_text(text);
    std::cout.flush();
    check();
  }
  static void check() {
    if (!std::cout) throw JobError("generate: cannot write to standard output", ErrorCode::unavailable);
  }
  const Tokenizer* tokenizer_;
  const GenerateArguments* arguments_;
  TextStream stream_;
  std::size_t at_ = 0;       // prompt
  std::size_t written_ = 0;  // its tokens
};

struct GivenPrompt {
  std::string where;  ///< for messages
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> marks = {};  ///< (T, 4) of the tokens (PromptImages::marks); empty without images
};

/// Reads the tokens of prompts: a text after the tokenizer's begin-of-text tokens, as in training, or a conversation in
/// the model's format, which may print today's date. Images and sounds stand before the text of the first message.
class PromptReader {
 public:
  PromptReader(const Tokenizer& tokenizer, bool begin_of_text, const TokenizerConfig& config)
      : tokenizer_(&tokenizer),
        begin_of_text_(begin_of_text),
        context_{.bos_token = config.bos_token, .eos_token = config.eos_token, .date = local_day()} {}
  /// Gives the images and sounds to all prompts; `seen` outlives this object.
  void show(const SeenImages& seen) { seen_ = &seen; }
  /// Takes the template of `folder` for all prompts. Throws JobError if there is none.
  void use_template(const TokenizerConfig& config, const std::string& folder) {
    if (config.chat_template.empty()) {
      throw JobError("generate --chat: " + folder + " has no chat template (chat_template.jinja, or in " +
                     "tokenizer_config.json); without --chat, --prompt takes text that has its format already");
    }
    template_.emplace(config.chat_template, config.template_file);
  }

  [[nodiscard]] GivenPrompt text(const std::string& where, const std::string& text) const {
    if (const auto prefix = seen_ == nullptr ? std::nullopt : seen_->prefix(text)) {
      return {where, *prefix, seen_->marks(*prefix)};
    }
    if (template_) return conversation(where, {{"user", text}});
    return {where, tokenizer_->encode_text(text, begin_of_text_)};
  }
  [[nodiscard]] GivenPrompt value(const JsonValue& value) const {
    if (value.json().is_string()) return text(value.file(), value.text());
    if (value.json().is_array() && !value.json().empty() && value.json().front().is_number()) return ids(value);
    if (!template_) value.expected("a string, or a list of token ids (with --chat also a list of messages)");
    std::vector<ChatMessage> messages;
    for (const JsonValue& message : value.items()) {
      message.allow_keys({"role", "content"});
      messages.push_back({message.at("role").text(), message.at("content").text()});
    }
    return conversation(value.file(), messages);
  }

 private:
  [[nodiscard]] static GivenPrompt ids(const JsonValue& value) {
    GivenPrompt prompt{value.file(), {}};
    for (const JsonValue& id : value.items())
      prompt.tokens.push_back(static_cast<std::int32_t>(id.whole_number(0, INT32_MAX)));
    return prompt;
  }
  [[nodiscard]] GivenPrompt conversation(const std::string& where, std::vector<ChatMessage> messages) const {
    if (seen_ == nullptr) return {where, tokenizer_->encode(template_->render_text(messages, context_))};
    for (std::size_t at = 0; at < messages.size(); ++at) {
      nlohmann::ordered_json parts = nlohmann::ordered_json::array();
      for (const Medium& medium : at == 0 ? seen_->media() : std::vector<Medium>()) {
        parts.push_back({{"type", medium.type}});
      }
      parts.push_back({{"type", "text"}, {"text", messages[at].content}});
      messages[at].fields = nlohmann::ordered_json{{"content", parts}}.dump();
    }
    GivenPrompt prompt{where, seen_->encode(template_->render_text(messages, context_))};
    prompt.marks = seen_->marks(prompt.tokens);
    return prompt;
  }

  const Tokenizer* tokenizer_;
  bool begin_of_text_;
  ChatContext context_;
  std::optional<ChatTemplate> template_;
  const SeenImages* seen_ = nullptr;  // null: no images
};

SamplingOptions sampling(const GenerateArguments& arguments, const HfGenerationConfig& config) {
  return {.repetition_penalty = config.repetition_penalty,
          .temperature = config.temperature,
          .top_k = config.top_k,
          .top_p = config.top_p,
          .log_probabilities = arguments.log_probabilities};
}

std::unique_ptr<Tokenizer> open_tokenizer_of(const GenerateArguments& arguments) {
  if (arguments.tokenizer == "bytes") return std::make_unique<ByteTokenizer>();
  auto opened = open_tokenizer(arguments.tokenizer.empty() ? arguments.folder : arguments.tokenizer);
  if (!opened && arguments.tokenizer.empty()) throw JobError(opened.error().message + "; name another by --tokenizer");
  return std::move(opened).value_or_throw();
}

std::vector<GivenPrompt> read_prompts(const GenerateArguments& arguments, const PromptReader& reader) {
  std::vector<GivenPrompt> prompts;
  for (const std::string& text : arguments.prompts) {
    if (valid_utf8_prefix(text) != text.size()) throw JobError("generate --prompt: the text is not UTF-8");
    prompts.push_back(reader.text("generate --prompt", text));
  }
  if (arguments.lines.empty()) return prompts;
  for_json_lines(arguments.lines, "generate", [&](const JsonValue& value) { prompts.push_back(reader.value(value)); });
  return prompts;
}

int run_generate(const GenerateArguments& arguments, Console& console) {
  if (arguments.prompts.empty() && arguments.lines.empty())
    throw JobError("generate: give --prompt TEXT, or --jsonl FILE");
  if (arguments.log_probabilities && !arguments.json) {
    throw JobError("generate --log-probabilities: they are part of the lines that --json prints; give --json too");
  }
  const HfGenerationConfig config_of_choice =
      read_hf_generation(arguments.folder, {arguments.temperature, arguments.top_k, arguments.top_p}).value_or_throw();
  const SamplingOptions options = sampling(arguments, config_of_choice);
  const TokenSampler checked(options);  // before the model is read
  for (const std::string& setting : config_of_choice.unused) {
    console.warning("generate: " + arguments.folder + "/generation_config.json: " + setting + " has no effect here");
  }
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer_of(arguments);
  TokenizerConfig config = read_tokenizer_config(arguments.folder).value_or_throw();
  const ContinuationLimits limits =
      continuation_limits(read_stop_tokens(arguments.folder).value_or_throw(), *tokenizer, arguments.max_tokens);
  PromptReader reader(*tokenizer, !arguments.no_begin_of_text, config);
  cpu::prepare_thread();
  const cpu::CpuOperatorTable ops;
  const DType precision = arguments.precision == "bf16" ? DType::bf16 : DType::f32;
  std::optional<SeenImages> seen;
  if (!arguments.images.empty() || !arguments.sounds.empty()) {
    seen.emplace(arguments.folder, arguments.images, arguments.sounds, *tokenizer, ops, precision);
    reader.show(*seen);
  }
  if (arguments.chat || seen) use_class_template(arguments.folder, config);
  if (arguments.chat || (seen && !seen->reads_prefixes())) reader.use_template(config, arguments.folder);
  const std::vector<GivenPrompt> prompts = read_prompts(arguments, reader);
  Generation generation(ops, arguments.folder, precision, arguments.memory);
  std::vector<Prompt> asked;
  for (const GivenPrompt& prompt : prompts) {
    asked.push_back({.tokens = prompt.tokens, .seed = arguments.seed + asked.size()});
    if (seen) asked.back().images = seen->rows(prompt.marks);
    const std::string refusal = generation.refusal(prompt.tokens, asked.back().images);
    if (!refusal.empty()) throw JobError(prompt.where + ": " + refusal);
  }
  Printer printer(*tokenizer, arguments);
  (void)complete(generation, asked, limits, options, arguments.slots,
                 [&](std::span<const Completion> all) { printer.show(all); });
  return 0;
}

}  // namespace

void add_generate(Commands& commands) {
  const auto [command, arguments] = commands.add("generate", "print text that continues prompts", run_generate);
  command
      .add_option("model", arguments.folder,
                  "a model's folder (config.json, weights and tokenizer), or its name in the hub's cache")
      ->required()
      ->transform([](const std::string& name) { return find_model(name).value_or_throw(); });
  auto* prompt = command.add_option("--prompt", arguments.prompts, "the text to continue; may be repeated")
                     ->allow_extra_args(false);
  command
      .add_option("--jsonl", arguments.lines,
                  "a file with a prompt a line, a JSON string or a list of token ids; - is standard input")
      ->excludes(prompt);
  command
      .add_option("--image", arguments.images,
                  "an image (PNG, JPEG, WebP) that every prompt asks about, with a vision-language model and its "
                  "chat template; may be repeated")
      ->allow_extra_args(false);
  command
      .add_option("--audio", arguments.sounds,
                  "a sound (WAV, FLAC) that every prompt asks about, with an audio-language model and its chat "
                  "template; may be repeated")
      ->allow_extra_args(false);
  command.add_option("--memory", arguments.memory,
                     "the folder of the memory that the model was trained with (docs/tables.md)");
  command.add_option("--tokenizer", arguments.tokenizer,
                     "another folder, a tokenizer file, or bytes (default: the folder's)");
  command.add_option("--temperature", arguments.temperature,
                     "0: the likeliest token (default: as in generation_config.json, else 0)");
  command
      .add_option("--top-k", arguments.top_k,
                  "only the k likeliest tokens; 0: all (default: as in generation_config.json, else all)")
      ->check(whole_number(0));
  command.add_option("--top-p", arguments.top_p,
                     "the fewest of these whose probabilities reach p (default: as in generation_config.json, else 1)");
  command.add_option("--seed", arguments.seed, "seed of the first prompt's draws; the next prompt has the next seed")
      ->check(seed_number());
  command.add_option("--max-tokens", arguments.max_tokens, "tokens at most for a prompt (default: 256)")
      ->check(whole_number(0));
  command
      .add_option(
          "--slots", arguments.slots,
          "prompts that are continued at a time, with memory for each; results do not depend on it (default: 8)")
      ->check(whole_number(1));
  command.add_option("--precision", arguments.precision, "precision of products: fp32 (default) or bf16")
      ->transform(CLI::IsMember({"fp32", "f32", "bf16"}));
  command.add_flag("--chat", arguments.chat,
                   "prompts are questions, or lists of messages, in the folder's chat template");
  command.add_flag("--no-begin-of-text", arguments.no_begin_of_text,
                   "leave out the tokenizer's begin-of-text tokens, for models trained without them");
  command.add_flag("--json", arguments.json, "print a line of ids, text and reason of the end for each prompt");
  command.add_flag(
      "--log-probabilities", arguments.log_probabilities,
      "with --json: also the logarithm of each token's probability, as it was drawn; for temperature 0 the "
      "model's");
}

}  // namespace maestro
