// SPDX-License-Identifier: Apache-2.0
// A rollback that the guard has chosen: from a lasting spike to a checkpoint before it.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/schedule/data_cursor.hpp"

namespace maestro {

/// Starting thread only, which rolls back after all actors of the run have ended.
struct Rollback {
  std::string cause;                ///< a line
  std::string section;              ///< section whose loss has the spike
  std::uint64_t spike = 0;          ///< the spike's first step
  std::string base;                 ///< the checkpoint's path
  DataCursor before;                ///< cursor of the run so far
  DataCursor cursor;                ///< cursor of the continued run
  std::uint64_t left_out_from = 0;  ///< first step at which the two cursors differ
};

}  // namespace maestro
