// SPDX-License-Identifier: Apache-2.0
// `maestro keys FOLDER`: certificates and the token of a job between hosts.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>

#include "actors/rpc/key_set.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

/// Makes a new key set.
class KeysCommand {
 public:
  explicit KeysCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  /// Makes the set and notes its contents. Returns the exit status. Throws JobError.
  int run(Console& console) const;

 private:
  CLI::App* command_;  // belongs to the CLI::App
  std::filesystem::path folder_;
  KeySetOptions options_;
};

}  // namespace maestro
