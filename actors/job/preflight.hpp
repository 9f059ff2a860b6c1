// SPDX-License-Identifier: Apache-2.0
// Checks the folders and ports of a run before anything starts, without creating them.
#pragma once

#include <filesystem>
#include <string>

#include "runtime/job/config.hpp"
#include "transport/fabric/provider.hpp"

namespace maestro {

/// Throws JobError that begins with `what` (the key or option), unless `folder` can be written or created.
void check_writable_folder(const std::filesystem::path& folder, const std::string& what);
/// Throws JobError that begins with `what`, unless `file` can be written or replaced, or is a device or pipe that can
/// be written through (AF-3).
void check_writable_file(const std::filesystem::path& file, const std::string& what);

/// Throws JobError if the job's port cannot be listened on. Another process may still take the port after the check.
void check_port_free(const TransportConfig& transport);
/// Throws JobError that lists the available providers if this machine lacks libfabric, or the provider of the job or of
/// MAESTRO_PROVIDER. A process' first call takes 0.3 s.
void check_provider(const TransportConfig& transport, SharedMemoryUse shared_memory = SharedMemoryUse::where_offered);

}  // namespace maestro
