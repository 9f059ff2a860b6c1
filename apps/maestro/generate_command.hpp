// SPDX-License-Identifier: Apache-2.0
// `maestro generate FOLDER`: text that continues prompts.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/dtype.hpp"
#include "runtime/observe/console.hpp"
#include "runtime/state/hf_generation.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "runtime/tokenizer/tokenizer_config.hpp"
#include "sections/decoder/text_generator.hpp"

namespace maestro {

/// Prints the text behind each prompt as it is written, or with --json a line of ids, text and reason of the end.
class GenerateCommand {
 public:
  explicit GenerateCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  /// Writes to standard output. Returns the exit status. Throws JobError; of a wrong prompt before any text is written.
  int run(Console& console) const;

 private:
  struct Prompt {
    std::string where;  ///< for messages
    std::vector<std::int32_t> tokens;
  };
  class PromptReader;
  [[nodiscard]] SamplingOptions sampling(const HfGenerationConfig& config) const;
  [[nodiscard]] std::unique_ptr<Tokenizer> open() const;
  [[nodiscard]] std::vector<Prompt> read_prompts(const PromptReader& reader) const;

  CLI::App* command_;  // belongs to the CLI::App
  std::string folder_;
  std::string tokenizer_;  // empty: the folder's
  std::vector<std::string> prompts_;
  std::string lines_;                  // a file
  std::optional<double> temperature_;  // absent: as generation_config.json has it, like the two below
  std::optional<std::int64_t> top_k_;
  std::optional<double> top_p_;
  std::uint64_t seed_ = 0;
  std::int64_t max_tokens_ = 256;
  std::string precision_ = "fp32";
  bool chat_ = false;
  bool no_begin_of_text_ = false;
  bool json_ = false;
};

}  // namespace maestro
