// SPDX-License-Identifier: Apache-2.0
// The section type `served` of job files.
#pragma once

#include "actors/served/served_section.hpp"
#include "sections/registry.hpp"

namespace maestro {

/// Whether a server that is not there when its section is read is waited for, as long as for a lost one. A process that
/// rank 0 starts waits, since it may begin before a server that was lost has come back.
enum class AbsentServer : std::uint8_t { refused, awaited };

/// Reads the keys of a served section, and its module from the server at the first address where `section` has a
/// corpus. Throws JobError: a key, no server, a module that cannot be a section.
[[nodiscard]] ServedOptions read_served(const SectionTable& section, AbsentServer absent);

/// Returns builtin_sections() and the type `served`: all types of a program that runs jobs.
[[nodiscard]] SectionRegistry program_sections(AbsentServer absent = AbsentServer::refused);

}  // namespace maestro
