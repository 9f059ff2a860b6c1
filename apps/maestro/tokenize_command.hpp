// SPDX-License-Identifier: Apache-2.0
// `maestro tokenize MODEL TEXT`: the tokens of a text, or the text of tokens.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "runtime/observe/console.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

/// Prints ids and pieces of a text. With --jsonl, reads a JSON string a line and prints an array of ids a line; with
/// --decode the reverse.
class TokenizeCommand {
 public:
  explicit TokenizeCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  /// Writes to standard output. Returns the exit status. Throws JobError.
  int run(Console& console) const;

 private:
  void run_text(const Tokenizer& tokenizer) const;
  void run_lines(const Tokenizer& tokenizer) const;

  CLI::App* command_;  // belongs to the CLI::App
  std::string model_;
  std::string text_;
  std::string lines_;  // a file
  bool decode_ = false;
  bool special_ = false;
};

}  // namespace maestro
