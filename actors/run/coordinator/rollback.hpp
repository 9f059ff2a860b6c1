// SPDX-License-Identifier: Apache-2.0
// A way back that the guard has chosen: from a spike that lasts to a checkpoint before it.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/schedule/data_cursor.hpp"

namespace maestro {

/// Of the starting thread, which carries it out when all actors of the run have ended.
struct Rollback {
  std::string cause;                ///< a line
  std::string section;              ///< whose loss it was
  std::uint64_t spike = 0;          ///< its first step
  std::string base;                 ///< path of the checkpoint
  DataCursor before;                ///< of the run so far
  DataCursor cursor;                ///< of the run that goes on
  std::uint64_t left_out_from = 0;  ///< the step from which on the two differ
};

}  // namespace maestro
