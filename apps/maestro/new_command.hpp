// SPDX-License-Identifier: Apache-2.0
// `maestro new section|plug-in|app NAME`: a folder to begin with.
//
// NW-1 (nothing lost): no file that is there is written; where one of the files is, none is written.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "runtime/observe/console.hpp"

namespace maestro {

/// A file of a new folder. @NAME@, @CLASS@ and @VERSION@ stand for the name, the name of its class and this version.
struct TemplateFile {
  std::string_view kind;  ///< folder of share/new
  std::string_view path;  ///< NAME stands for the name
  std::string_view text;
};
/// Returns those of share/new, which the build compiles in.
[[nodiscard]] std::span<const TemplateFile> template_files();

/// Writes the files of a kind.
class NewCommand {
 public:
  explicit NewCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  /// Returns the exit status. Throws JobError for a name that does not fit, a file that exists or cannot be written.
  int run(Console& console) const;

 private:
  CLI::App* command_;  // belongs to the CLI::App
  std::string kind_;
  std::string name_;
  std::filesystem::path folder_;
};

}  // namespace maestro
