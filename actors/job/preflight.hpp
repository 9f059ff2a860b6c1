// SPDX-License-Identifier: Apache-2.0
// Checks folders and ports before anything starts, which a run would use only later. Creates nothing.
#pragma once

#include <filesystem>
#include <string>

#include "runtime/job/config.hpp"
#include "transport/fabric/provider.hpp"

namespace maestro {

/// Throws JobError that begins with `what` (the key or option), unless `folder` can be written or made.
void check_writable_folder(const std::filesystem::path& folder, const std::string& what);
/// Checks likewise a file to be written or replaced, or a device or pipe to be written through (AF-3).
void check_writable_file(const std::filesystem::path& file, const std::string& what);

/// Throws JobError when a port of the job cannot be listened on. Another process may still take it in between.
void check_port_free(const TransportConfig& transport);
/// Throws JobError that lists the available providers when this machine lacks the provider of the job or
/// MAESTRO_PROVIDER, or libfabric itself. The first call of a process takes 0.3 s.
void check_provider(const TransportConfig& transport, SharedMemoryUse shared_memory = SharedMemoryUse::where_offered);

}  // namespace maestro
