#include "runtime/schedule/order_policy.hpp"

#include <string>

#include "runtime/core/result.hpp"

namespace maestro {

std::unique_ptr<OrderPolicy> make_order_policy(std::string_view name) {
  if (name == "arrival") return std::make_unique<ArrivalOrder>();
  throw JobError("no order policy is named '" + std::string(name) + "'; there is 'arrival'");
}

}  // namespace maestro
