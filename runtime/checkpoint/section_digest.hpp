// SPDX-License-Identifier: Apache-2.0
// Digests of the state of trained sections, by which a run that is done again is compared with its record.
//
// DX-1 (independent of layout): the digest of a section is the same on any number of ranks, stages and replicas, and in
//       any number of files.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "runtime/core/result.hpp"

namespace maestro {

/// Returns, by section, a digest of 16 hexadecimal digits of a checkpoint's values, optimizer state and number of
/// updates: the sum modulo 2^64 of the digests of its tensors. Reads all files; errors as read_section().
[[nodiscard]] Result<std::map<std::string, std::string>> section_digests(const std::filesystem::path& checkpoint);

}  // namespace maestro
