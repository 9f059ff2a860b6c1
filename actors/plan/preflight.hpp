// SPDX-License-Identifier: Apache-2.0
// Complaints about places and ports that a run would meet only later, told before anything starts. Nothing is created.
#pragma once

#include <filesystem>
#include <string>

#include "runtime/job/config.hpp"

namespace maestro {

/// Throws JobError, which opens with `what` (the key or option), unless `folder` can be written or made.
void check_writable_folder(const std::filesystem::path& folder, const std::string& what);
/// The same for a file to be written or replaced, or what else is there to be written through (AF-3).
void check_writable_file(const std::filesystem::path& file, const std::string& what);

/// Throws JobError when nobody can listen on a port that the job names. Another process may still take it in between.
void check_port_free(const TransportConfig& transport);
/// Throws JobError, listing what there is, when this machine lacks the provider of the job or of MAESTRO_PROVIDER.
void check_provider(const TransportConfig& transport);

}  // namespace maestro
