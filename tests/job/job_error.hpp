// SPDX-License-Identifier: Apache-2.0
// The error line that a user would see.
#pragma once

#include <string>

#include "runtime/core/result.hpp"

namespace maestro {

/// Returns the message of the JobError that `action` throws; if it throws none, a text that never is an error message.
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
