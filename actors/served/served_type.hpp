// SPDX-License-Identifier: Apache-2.0
// The section type `served` of job files.
#pragma once

#include "sections/registry.hpp"
#include "sections/served/served_section.hpp"

namespace maestro {

/// Behaviour if the server is missing when its section is read: refuse the job, or wait as long as for a lost server. A
/// process that rank 0 starts waits, since it may begin before a lost server has returned.
enum class AbsentServer : std::uint8_t { refused, awaited };

/// Reads the keys of a served section, and its module from the server at the first address if `section` has a corpus.
/// Throws JobError for an invalid key, a missing server, or a module that cannot be a section.
[[nodiscard]] ServedOptions read_served(const SectionTable& section, AbsentServer absent);

/// Returns builtin_sections() and the type `served`: all types of a program that runs jobs.
[[nodiscard]] SectionRegistry program_sections(AbsentServer absent = AbsentServer::refused);

}  // namespace maestro
