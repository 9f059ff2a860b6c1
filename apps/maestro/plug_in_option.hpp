// SPDX-License-Identifier: Apache-2.0
// --plugin FILE: plug-ins beside those that a job names.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "runtime/data/corpus_registry.hpp"
#include "runtime/job/job_document.hpp"
#include "runtime/observe/run_observer.hpp"
#include "sections/registry.hpp"

namespace maestro {

/// Adds --plugin, which may be repeated. `files` outlives `command`.
void add_plug_in_option(CLI::App& command, std::vector<std::string>& files);
struct PlugInTypes {
  SectionRegistry sections;  ///< those of this program, too
  CorpusRegistry corpora;
  ObserverRegistry observers;
};
/// Returns the types of this program and of these plug-ins. Throws JobError.
[[nodiscard]] PlugInTypes types_with(const std::vector<std::string>& files);
/// Returns the setting (--set) by which a job has these plug-ins beside its own: one that records and other processes
/// keep.
[[nodiscard]] std::string plug_ins_setting(const JobDocument& job, const std::vector<std::string>& files);

}  // namespace maestro
