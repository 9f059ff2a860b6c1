// SPDX-License-Identifier: Apache-2.0
// `maestro prepare FILES... --tokenizer MODEL --out DIR`: data as tokens, for [data] kind = "prepared".
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "runtime/observe/console.hpp"
#include "runtime/records/prepare.hpp"

namespace maestro {

class PrepareCommand {
 public:
  explicit PrepareCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  /// Prepares the files and prints what there is then. Returns the exit status: 130 after a signal, which leaves
  /// nothing behind. Throws JobError.
  int run(Console& console) const;

 private:
  [[nodiscard]] PrepareOptions options() const;

  CLI::App* command_;  // belongs to the CLI::App
  std::vector<std::string> files_;
  std::string tokenizer_;
  std::string out_;
  bool as_text_ = false;
  bool no_begin_of_text_ = false;
  std::string field_;
  std::string template_ = "auto";
  std::string end_of_turn_;
  std::string date_;
  std::string learn_ = "answers";
  double validation_ = 0.01;
  std::size_t jobs_ = 0;
  std::uint64_t max_bad_ = 0;
};

}  // namespace maestro
