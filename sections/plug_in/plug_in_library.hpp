// SPDX-License-Identifier: Apache-2.0
// A job's plug-ins: shared libraries with section types and corpora (plug_in.hpp).
//
// PX-1 (checked first): a library's code runs only if its file states this program's ABI.
// PX-2 (one runtime): a program refuses plug-ins if its maestro code is not in libmaestro.so.
// PX-3 (a single line): every refusal is a JobError with a single line that names the file.
// PX-4 (stays): a library stays loaded until the process ends: sections and thread-local objects use its code.
// PX-5 (recorded): build_id() also names the loaded plug-ins, so that a replay notices another build of a plug-in.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/job/job_table.hpp"
#include "sections/plug_in/plug_in.hpp"

namespace maestro {

class PlugInLibrary {
 public:
  /// Loads a library; `file` is relative to this folder, or absolute. Throws JobError.
  explicit PlugInLibrary(const std::filesystem::path& file);
  /// Adds the library's types. Throws JobError with the names of both libraries if a type is already registered.
  void add_to(const PlugInRegistries& registries) const;

 private:
  std::string name_;
  const PlugIn* entry_ = nullptr;
};

/// Returns the ABI that plug-ins of this program must have.
[[nodiscard]] std::string_view plug_in_abi();

/// Reads the key `plugins` at a job's top level.
[[nodiscard]] std::vector<std::string> read_plug_ins(const JobTable& root);
/// Loads a job's plug-ins in order, and adds their types. Throws JobError with the position of `plugins`.
void add_plug_ins(const JobTable& root, const PlugInRegistries& registries);

}  // namespace maestro
