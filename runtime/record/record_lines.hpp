// SPDX-License-Identifier: Apache-2.0
// Reads pages of a record's steps.jsonl (RunLog) while the run appends to it.
//
// RG-1 (cheap pages): a page costs reads in the order of its own size, whatever the size of the file.
// RG-2 (whole lines): a page has whole lines only, in their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/core/result.hpp"

namespace maestro {

struct PageLimits {
  std::size_t lines = 10000;
  std::size_t bytes = std::size_t{2} << 20;  ///< a longer first line is returned all the same
};

/// Returns lines from step `first` on, with their ends; empty: there are none yet. Errors name the file.
[[nodiscard]] Result<std::string> lines_from_step(const std::filesystem::path& file, std::uint64_t first,
                                                  PageLimits limits = {});

}  // namespace maestro
