// The backends that operator tests run against: each is a name and a way to make its operator table.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/ops/operator_table.hpp"

namespace maestro::testing {

struct Backend {
  std::string name;  ///< fit for a test name
  std::function<std::unique_ptr<OperatorTable>()> make;
};

/// Every way in which this machine can run operators.
std::vector<Backend> backends();

}  // namespace maestro::testing
