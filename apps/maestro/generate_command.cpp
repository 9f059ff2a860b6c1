// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/generate_command.hpp"

#include <iostream>
#include <optional>

#include "apps/maestro/json_lines.hpp"
#include "apps/maestro/number_options.hpp"
#include "runtime/chat/chat_template.hpp"
#include "runtime/core/hub_cache.hpp"
#include "runtime/core/iso_time.hpp"
#include "runtime/core/json_text.hpp"
#include "runtime/core/utf8.hpp"
#include "runtime/observe/printed_line.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "runtime/ops/cpu/thread.hpp"
#include "runtime/tokenizer/text_stream.hpp"

namespace maestro {

using nlohmann::json;

namespace {

/// Writes a continuation to standard output while it grows.
class Printer {
 public:
  Printer(const Tokenizer& tokenizer, bool json) : tokenizer_(&tokenizer), stream_(tokenizer), json_(json) {}

  void add(std::int32_t token) {
    if (json_) {
      tokens_.push_back(token);
    } else {
      print_foreign_text(stream_.add(token));
      std::cout.flush();
    }
    check();
  }
  void finish(Finish how) {
    if (!json_) {
      print_foreign_text(stream_.finish() + "\n");
      std::cout.flush();
      return check();
    }
    const nlohmann::ordered_json line{{"ids", tokens_},
                                      {"text", tokenizer_->decode(tokens_, true)},
                                      {"finish", how == Finish::stop ? "stop" : "length"}};
    std::cout << line.dump() << std::endl;
    check();
  }

 private:
  static void check() {
    if (!std::cout) throw JobError("generate: cannot write to standard output", ErrorCode::unavailable);
  }
  const Tokenizer* tokenizer_;
  TextStream stream_;
  bool json_;
  std::vector<std::int32_t> tokens_;
};

}  // namespace

/// Tokens of prompts: of a text with the begin-of-text tokens of the tokenizer, as in training, or of a conversation in
/// the model's format, which may print today's date.
class GenerateCommand::PromptReader {
 public:
  PromptReader(const Tokenizer& tokenizer, bool begin_of_text, const TokenizerConfig& config)
      : tokenizer_(&tokenizer),
        begin_of_text_(begin_of_text),
        context_{.bos_token = config.bos_token, .eos_token = config.eos_token, .date = local_day()} {}
  /// Takes the template of `folder` for all prompts. Throws JobError: there is none.
  void use_template(const TokenizerConfig& config, const std::string& folder) {
    if (config.chat_template.empty()) {
      throw JobError("generate --chat: " + folder + " has no chat template, neither chat_template.jinja nor that of " +
                     "tokenizer_config.json; without --chat, --prompt takes text that has its format already");
    }
    template_.emplace(config.chat_template, config.template_file);
  }

  [[nodiscard]] Prompt text(const std::string& where, const std::string& text) const {
    if (template_) return conversation(where, {{"user", text}});
    return {where, tokenizer_->encode_text(text, begin_of_text_)};
  }
  [[nodiscard]] Prompt value(const std::string& where, const json& value) const {
    if (value.is_string()) return text(where, value.get<std::string>());
    if (!template_)
      throw JobError(where + " is " + shown(value) + "; it must be a text (with --chat also a list of messages)");
    if (!value.is_array()) throw JobError(where + " is " + shown(value) + "; it must be a text or a list of messages");
    std::vector<ChatMessage> messages;
    for (std::size_t i = 0; i < value.size(); ++i) {
      messages.push_back(message(where + ": [" + std::to_string(i) + "]", value[i]));
    }
    return conversation(where, messages);
  }

 private:
  [[nodiscard]] static ChatMessage message(const std::string& where, const json& value) {
    const bool whole = value.is_object() && value.size() == 2 && value.contains("role") && value.contains("content") &&
                       value["role"].is_string() && value["content"].is_string();
    if (!whole) throw JobError(where + " is " + shown(value) + R"(; a message is {"role": TEXT, "content": TEXT})");
    return {value["role"].get<std::string>(), value["content"].get<std::string>()};
  }
  [[nodiscard]] Prompt conversation(const std::string& where, const std::vector<ChatMessage>& messages) const {
    return {where, tokenizer_->encode(template_->render_text(messages, context_))};
  }

  const Tokenizer* tokenizer_;
  bool begin_of_text_;
  ChatContext context_;
  std::optional<ChatTemplate> template_;
};

GenerateCommand::GenerateCommand(CLI::App& app)
    : command_(app.add_subcommand("generate", "print text that continues prompts")) {
  command_
      ->add_option("model", folder_,
                   "a model's folder (config.json, weights and tokenizer), or its name in the hub's cache")
      ->required()
      ->transform([](const std::string& name) { return find_model(name).value_or_throw(); });
  auto* prompt =
      command_->add_option("--prompt", prompts_, "the text to continue; may be repeated")->allow_extra_args(false);
  command_->add_option("--jsonl", lines_, "a file with a prompt, a JSON string, a line; - is standard input")
      ->excludes(prompt);
  command_->add_option("--tokenizer", tokenizer_, "another folder, a tokenizer file, or bytes (default: the folder's)");
  command_->add_option("--temperature", temperature_,
                       "0: the likeliest token (default: as generation_config.json has it, else 0)");
  command_->add_option("--top-k", top_k_, "only the k likeliest tokens; 0: all (default: likewise, else all)")
      ->check(whole_number(0));
  command_->add_option("--top-p", top_p_,
                       "of those the fewest whose probabilities reach p (default: likewise, else 1)");
  command_->add_option("--seed", seed_, "of the draws")->check(whole_number(0));
  command_->add_option("--max-tokens", max_tokens_, "tokens at most for a prompt (default: 256)")
      ->check(whole_number(0));
  command_->add_option("--precision", precision_, "of the products: fp32 (default) or bf16")
      ->transform(CLI::IsMember({"fp32", "f32", "bf16"}));
  command_->add_flag("--chat", chat_, "prompts are questions, or lists of messages, in the folder's chat template");
  command_->add_flag("--no-begin-of-text", no_begin_of_text_,
                     "leave out the begin-of-text tokens of the tokenizer, for models trained without them");
  command_->add_flag("--json", json_, "print a line of ids, text and reason of the end for each prompt");
}

SamplingOptions GenerateCommand::sampling(const HfGenerationConfig& config) const {
  return {.repetition_penalty = config.repetition_penalty,
          .temperature = config.temperature,
          .top_k = config.top_k,
          .top_p = config.top_p,
          .seed = seed_};
}

int GenerateCommand::run(Console& console) const {
  if (prompts_.empty() && lines_.empty()) throw JobError("generate: give --prompt TEXT, or --jsonl FILE");
  const HfGenerationConfig generation = read_hf_generation(folder_, {temperature_, top_k_, top_p_}).value_or_throw();
  TokenSampler sampler(sampling(generation));
  for (const std::string& setting : generation.unused) {
    console.warning("generate: " + folder_ + "/generation_config.json: " + setting + " has no effect here");
  }
  const std::unique_ptr<Tokenizer> tokenizer = open();
  const TokenizerConfig config = read_tokenizer_config(folder_).value_or_throw();
  const ContinuationLimits limits =
      continuation_limits(read_stop_tokens(folder_).value_or_throw(), *tokenizer, max_tokens_);
  PromptReader reader(*tokenizer, !no_begin_of_text_, config);
  if (chat_) reader.use_template(config, folder_);
  const std::vector<Prompt> prompts = read_prompts(reader);
  cpu::prepare_thread();
  const cpu::CpuOperatorTable ops;
  TextGenerator generator(ops, folder_, precision_ == "bf16" ? DType::bf16 : DType::f32);
  for (const Prompt& prompt : prompts) {
    const std::string refusal = generator.refusal(prompt.tokens);
    if (!refusal.empty()) throw JobError(prompt.where + ": " + refusal);
  }
  for (const Prompt& prompt : prompts) {
    Printer printer(*tokenizer, json_);
    const auto print = [&](std::int32_t token) { printer.add(token); };
    printer.finish(generator.continue_prompt(prompt.tokens, limits, sampler, print));
  }
  return 0;
}

std::unique_ptr<Tokenizer> GenerateCommand::open() const {
  if (tokenizer_ == "bytes") return std::make_unique<ByteTokenizer>();
  auto opened = open_tokenizer(tokenizer_.empty() ? folder_ : tokenizer_);
  if (!opened && tokenizer_.empty()) throw JobError(opened.error().message + "; name another by --tokenizer");
  return std::move(opened).value_or_throw();
}

std::vector<GenerateCommand::Prompt> GenerateCommand::read_prompts(const PromptReader& reader) const {
  std::vector<Prompt> prompts;
  for (const std::string& text : prompts_) {
    if (valid_utf8_prefix(text) != text.size()) throw JobError("generate --prompt: the text is no UTF-8");
    prompts.push_back(reader.text("generate --prompt", text));
  }
  if (lines_.empty()) return prompts;
  for_json_lines(lines_, "generate",
                 [&](const std::string& where, const json& value) { prompts.push_back(reader.value(where, value)); });
  return prompts;
}

}  // namespace maestro
