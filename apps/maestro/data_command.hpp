// SPDX-License-Identifier: Apache-2.0
// `maestro data DIR`: what a folder of prepared data holds.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "runtime/observe/console.hpp"

namespace maestro {

/// Prints sources, splits and lengths; with --show some documents, with what is learned between » and «; with --verify
/// the checksums are compared.
class DataCommand {
 public:
  explicit DataCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  /// Writes to standard output. Returns the exit status. Throws JobError.
  int run(Console& console) const;

 private:
  CLI::App* command_;  // belongs to the CLI::App
  std::string folder_;
  std::string split_ = "train";
  std::uint64_t show_ = 0;
  std::uint64_t first_ = 0;
  bool verify_ = false;
};

}  // namespace maestro
