// SPDX-License-Identifier: Apache-2.0
// Reads pages of a record's steps.jsonl (RunLog) while the run appends to it.
//
// RG-1 (cheap pages): the reads for a page grow with the page's size, independent of the file's size.
// RG-2 (whole lines): a page consists of complete lines, in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/core/result.hpp"

namespace maestro {

struct PageLimits {
  std::size_t lines = 10000;
  std::size_t bytes = std::size_t{2} << 20;  ///< limit of a page; a longer first line is still returned
};

/// Returns lines from step `first` on, with their ends; empty if there are none yet. Errors name the file.
[[nodiscard]] Result<std::string> lines_from_step(const std::filesystem::path& file, std::uint64_t first,
                                                  PageLimits limits = {});

}  // namespace maestro
