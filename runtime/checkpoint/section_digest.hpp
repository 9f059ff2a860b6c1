// SPDX-License-Identifier: Apache-2.0
// Digests of trained sections' states, to compare a repeated run with its record.
//
// DX-1 (independent of layout): a section's digest is the same for any number of ranks, stages, replicas and files.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "runtime/core/result.hpp"

namespace maestro {

/// Returns a digest by section, 16 hexadecimal digits over a checkpoint's values, optimizer state and number of
/// updates: the sum modulo 2^64 over all tensor digests. Reads all files; errors as read_section().
[[nodiscard]] Result<std::map<std::string, std::string>> section_digests(const std::filesystem::path& checkpoint);

}  // namespace maestro
