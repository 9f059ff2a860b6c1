// SPDX-License-Identifier: Apache-2.0
// The plug-ins of a command line: --plugin FILE and --no-plugins.
//
// PQ-1 (asked for): only `train` loads a library because a file names it. Every other command loads only the libraries
//       of --plugin, and refuses a job, a record or a trace that names another one, before any code of a library runs.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "runtime/data/corpus_registry.hpp"
#include "runtime/job/job_document.hpp"
#include "runtime/observe/run_observer.hpp"
#include "sections/registry.hpp"

namespace maestro {

struct PlugInChoice {
  std::vector<std::string> files;  ///< --plugin, which may be repeated
  bool none_named = false;         ///< --no-plugins: load none that a file names
};
/// Adds --plugin and --no-plugins. `choice` outlives `command`.
void add_plug_in_options(CLI::App& command, PlugInChoice& choice);
struct PlugInTypes {
  SectionRegistry sections;  ///< this program's types, too
  CorpusRegistry corpora;
  ObserverRegistry observers;
};
/// Returns the types of this program and of these plug-ins. Throws JobError.
[[nodiscard]] PlugInTypes types_with(const std::vector<std::string>& files);

enum class NamedPlugIns {
  loaded,     ///< the user runs the job
  asked_for,  ///< PQ-1
};
/// Loads the command's libraries. Returns the settings (--set) that name them in the job, so that its record and its
/// other processes have them. Throws JobError if a library cannot be loaded, or was not asked for.
[[nodiscard]] std::vector<std::string> plug_in_settings(const JobDocument& job, const PlugInChoice& choice,
                                                        NamedPlugIns named);

}  // namespace maestro
