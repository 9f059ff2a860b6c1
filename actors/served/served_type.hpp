// SPDX-License-Identifier: Apache-2.0
// The section type `served` of job files.
#pragma once

#include "actors/served/served_section.hpp"
#include "sections/registry.hpp"

namespace maestro {

/// Reads the keys of a served section, and its module from the server at the first address where `section` has a
/// corpus. Throws JobError: a key, no server, a module that cannot be a section.
[[nodiscard]] ServedOptions read_served(const SectionTable& section);

/// Returns builtin_sections() and the type `served`: all types of a program that runs jobs.
[[nodiscard]] SectionRegistry program_sections();

}  // namespace maestro
