// SPDX-License-Identifier: Apache-2.0
#include "apps/fleet/host_pool.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace maestro {

std::size_t HostPool::host_for(std::int64_t devices) const {
  const std::int64_t wanted = std::min(devices, devices_of_host_);
  std::size_t best = 0;
  for (std::size_t host = 1; host < free_.size(); ++host) {
    const bool enough = free_[host] >= wanted;
    const bool best_enough = free_[best] >= wanted;
    const bool better = enough ? !best_enough || free_[host] < free_[best] : !best_enough && free_[host] > free_[best];
    if (better) best = host;
  }
  return best;
}

void HostPool::take(std::int64_t devices, HostPlaces& places) {
  if (devices > all_free_) {
    throw std::logic_error("HostPool: " + std::to_string(devices) + " devices, free: " + std::to_string(all_free_));
  }
  all_free_ -= devices;
  while (devices > 0) {
    const std::size_t host = host_for(devices);
    const std::int64_t taken = std::min(devices, free_[host]);
    free_[host] -= taken;
    places[host] += taken;
    devices -= taken;
  }
}

void HostPool::give_back(const HostPlaces& places) {
  for (const auto& [host, devices] : places) {
    free_.at(host) += devices;
    all_free_ += devices;
    if (free_[host] > devices_of_host_) throw std::logic_error("HostPool: devices were given back twice");
  }
}

bool HostPool::spread(const HostPlaces& places) const {
  std::int64_t devices = 0;
  for (const auto& [host, on_it] : places) devices += on_it;
  return std::ssize(places) > (devices + devices_of_host_ - 1) / devices_of_host_;
}

HostPlaces split_off(HostPlaces& places, std::int64_t devices) {
  HostPlaces taken;
  while (devices > 0) {
    const auto fullest = std::ranges::max_element(places, {}, [](const auto& place) { return place.second; });
    if (fullest == places.end()) throw std::logic_error("split_off: more devices than there are");
    const std::int64_t count = std::min(devices, fullest->second);
    taken[fullest->first] = count;
    devices -= count;
    fullest->second -= count;
    if (fullest->second == 0) places.erase(fullest);
  }
  return taken;
}

}  // namespace maestro
