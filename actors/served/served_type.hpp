// SPDX-License-Identifier: Apache-2.0
// The section type `served` of job files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "sections/registry.hpp"
#include "sections/served/served_section.hpp"

namespace maestro {

/// Behaviour if the server is missing when its section is read: refuse the job; wait for `connect_s`, as a run does; or
/// wait for `reconnect_s`, as a process that rank 0 starts does, since it may begin before a lost server has returned.
enum class AbsentServer : std::uint8_t { refused, awaited, returning };

struct ServerWait {
  AbsentServer absent = AbsentServer::refused;
  std::function<void(const std::string& line)> note = {};  ///< receives a line about a wait of a second; may be empty
};

/// Reads the keys of a served section, and its module from the server at the first address if `section` has a corpus.
/// Throws JobError for an invalid key, a missing server, or a module that cannot be a section.
[[nodiscard]] ServedOptions read_served(const SectionTable& section, const ServerWait& wait);

/// Returns builtin_sections() and the type `served`: all types of a program that runs jobs.
[[nodiscard]] SectionRegistry program_sections(const ServerWait& wait = {});

}  // namespace maestro
