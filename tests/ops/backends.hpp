// SPDX-License-Identifier: Apache-2.0
// The backends that operator tests run against: each is a name and a factory for its operator table.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "runtime/ops/operator_table.hpp"

namespace maestro::testing {

struct Backend {
  std::string name;  ///< name that is valid for a test
  std::function<std::unique_ptr<OperatorTable>()> make;
};

/// Names the backend in test output; GoogleTest finds it through the type's namespace.
inline void PrintTo(const Backend& backend, std::ostream* out) {
  *out << backend.name;
}

std::vector<Backend> backends();

}  // namespace maestro::testing
