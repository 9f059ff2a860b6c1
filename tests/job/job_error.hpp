// SPDX-License-Identifier: Apache-2.0
// The line a user would see.
#pragma once

#include <string>

#include "runtime/core/result.hpp"

namespace maestro {

/// Message of the JobError that `action` throws; a text no error has when it throws none.
template <class Action>
[[nodiscard]] std::string job_error_of(Action&& action) {
  try {
    action();
  } catch (const JobError& error) {
    return error.what();
  }
  return "(no error)";
}

}  // namespace maestro
