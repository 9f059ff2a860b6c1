// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/policy.hpp"

#include <numeric>
#include <string>

#include "runtime/core/named_table.hpp"
#include "runtime/core/nearest_name.hpp"
#include "runtime/wavefront/arrival.hpp"
#include "runtime/wavefront/bulk_synchronous.hpp"
#include "runtime/wavefront/wavefront_policy.hpp"

namespace maestro {

std::vector<std::size_t> SchedulingPolicy::packing_order(const Workload&, std::size_t count) const {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

namespace {
NamedTable<PolicyFactory>& added_policies() {
  static NamedTable<PolicyFactory> added("scheduling policy", {"arrival", "bulk_synchronous", "wavefront"});
  return added;
}
}  // namespace

void add_policy(std::string name, PolicyFactory make, std::string origin) {
  added_policies().add(std::move(name), std::move(make), std::move(origin));
}

std::unique_ptr<SchedulingPolicy> make_policy(std::string_view name, const PolicyOptions& options) {
  if (name == "arrival") return std::make_unique<ArrivalPolicy>();
  if (name == "bulk_synchronous") return std::make_unique<BulkSynchronousPolicy>();
  if (name == "wavefront") return std::make_unique<WavefrontPolicy>(options);
  if (const auto added = added_policies().find(std::string(name))) return (*added)(options);
  const auto nearest = nearest_name(name, policy_names());
  throw JobError("unknown scheduling policy \"" + std::string(name) + "\"; " +
                 (nearest ? "did you mean \"" + *nearest + "\"?"
                          : "there are \"arrival\", \"bulk_synchronous\" and \"wavefront\""));
}

std::vector<std::string> policy_names() {
  return added_policies().names();
}

}  // namespace maestro
