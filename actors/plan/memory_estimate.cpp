// SPDX-License-Identifier: Apache-2.0
#include "actors/plan/memory_estimate.hpp"

#include <cmath>

#include "runtime/core/result.hpp"

namespace maestro {

namespace {

constexpr double mib = 1024.0 * 1024.0;

std::string in_mib(double bytes) {
  return std::to_string(static_cast<std::int64_t>(std::ceil(bytes / mib))) + " MiB";
}

}  // namespace

double parameter_bytes(const MemoryDemand& demand) {
  const auto elements = static_cast<double>(demand.parameters);
  const auto packed = static_cast<double>(size_of(demand.precision));
  if (!demand.trained) return elements * (sizeof(float) + (demand.keeps_activations ? 2 : 1) * packed);
  const double moments = 2.0 * sizeof(float) / static_cast<double>(demand.moment_shards);
  const double below = static_cast<double>(demand.weights_below) * 2.0 * packed;
  return below + elements * (2.0 * sizeof(float) + moments + 2.0 * packed);
}

double activation_bytes(const MemoryDemand& demand) {
  if (!demand.keeps_activations) return 0;
  return demand.sample_bytes * static_cast<double>(demand.micro_batch * demand.in_flight);
}

void check_memory(const std::string& section, const MemoryDemand& demand, std::int64_t memory_mib) {
  const double limit = static_cast<double>(memory_mib) * mib;
  const double parameters = parameter_bytes(demand);
  const double activations = activation_bytes(demand);
  if (memory_mib == 0 || parameters + activations <= limit) return;
  const std::string needs = section + ".micro_batch = " + std::to_string(demand.micro_batch) + " needs about " +
                            in_mib(parameters + activations) + " on each device (parameters " + in_mib(parameters) +
                            ", activations of " + std::to_string(demand.in_flight) + " micro-batches in flight " +
                            in_mib(activations) + "), more than memory_mib = " + std::to_string(memory_mib);
  const double one = demand.sample_bytes * static_cast<double>(demand.in_flight);
  const auto fits = static_cast<std::int64_t>((limit - parameters) / std::max(one, 1.0));
  if (limit > parameters && fits >= 1) {
    throw JobError(needs + "; nearest that fits: micro_batch = " + std::to_string(fits));
  }
  throw JobError(needs + "; not even one sample fits: raise tensor, pipeline or memory_mib" +
                 (demand.in_flight > 1 ? ", or lower max_in_flight" : ""));
}

}  // namespace maestro
