// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/renamed_places.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "runtime/schedule/assignment.hpp"

namespace maestro {

namespace {

/// Parts on a device: number of the name, bytes; in number order.
using DeviceParts = std::vector<std::pair<std::size_t, double>>;
using HostParts = std::vector<DeviceParts>;  // by device

class Names {
 public:
  std::size_t number_of(const std::string& name) { return numbers_.emplace(name, numbers_.size()).first->second; }

 private:
  std::map<std::string, std::size_t> numbers_;
};

std::vector<HostParts> by_host(std::span<const PlacedPart> plan, std::int64_t hosts, std::int64_t devices,
                               Names& names) {
  std::vector<HostParts> found(static_cast<std::size_t>(hosts), HostParts(static_cast<std::size_t>(devices)));
  for (const PlacedPart& part : plan) {
    if (part.host < 0 || part.host >= hosts || part.device < 0 || part.device >= devices) {
      throw std::out_of_range("renamed_places: " + part.name + " is on device " + std::to_string(part.device) +
                              " of host " + std::to_string(part.host) + ", of " + std::to_string(hosts) + " hosts of " +
                              std::to_string(devices) + " devices");
    }
    found[static_cast<std::size_t>(part.host)][static_cast<std::size_t>(part.device)].emplace_back(
        names.number_of(part.name), part.bytes);
  }
  for (HostParts& host : found) {
    for (DeviceParts& device : host) std::ranges::sort(device);
  }
  return found;
}

/// Returns the bytes of `next` that `old` already has.
double kept_bytes(const DeviceParts& old, const DeviceParts& next) {
  double bytes = 0;
  auto there = old.begin();
  for (const auto& [name, of_part] : next) {
    while (there != old.end() && there->first < name) ++there;
    if (there != old.end() && there->first == name) bytes += of_part;
  }
  return bytes;
}

/// Returns the matching between the devices of `next` and `old`, whose cost is minus the bytes that it keeps.
Assignment matched(const HostParts& old, const HostParts& next) {
  CostMatrix costs(next.size(), old.size());
  for (std::size_t from = 0; from < next.size(); ++from) {
    for (std::size_t to = 0; to < old.size(); ++to) costs.at(from, to) = -kept_bytes(old[to], next[from]);
  }
  return Assignment(costs);
}

/// Numbers hosts by their parts: equal hosts have equal numbers.
std::vector<std::size_t> numbers_of_kinds(const std::vector<HostParts>& hosts) {
  std::map<HostParts, std::size_t> known;
  std::vector<std::size_t> kinds;
  for (const HostParts& host : hosts) kinds.push_back(known.emplace(host, known.size()).first->second);
  return kinds;
}

}  // namespace

RenamedPlaces renamed_places(std::span<const PlacedPart> old, std::span<const PlacedPart> next, std::int64_t hosts,
                             std::int64_t devices_of_host) {
  Names names;
  const std::vector<HostParts> before = by_host(old, hosts, devices_of_host, names);
  const std::vector<HostParts> after = by_host(next, hosts, devices_of_host, names);
  const std::vector<std::size_t> kinds_before = numbers_of_kinds(before);
  const std::vector<std::size_t> kinds_after = numbers_of_kinds(after);
  std::map<std::pair<std::size_t, std::size_t>, double> known;  // cost by pair of kinds
  CostMatrix costs(after.size(), before.size());
  for (std::size_t from = 0; from < after.size(); ++from) {
    for (std::size_t to = 0; to < before.size(); ++to) {
      const auto [found, fresh] = known.try_emplace({kinds_after[from], kinds_before[to]});
      if (fresh) found->second = matched(before[to], after[from]).cost();
      costs.at(from, to) = found->second;
    }
  }
  RenamedPlaces renaming;
  const Assignment by_hosts(costs);
  for (std::size_t from = 0; from < after.size(); ++from) {
    const std::size_t to = by_hosts.column_of(from);
    renaming.hosts.push_back(static_cast<std::int64_t>(to));
    const Assignment by_devices = matched(before[to], after[from]);
    renaming.devices.emplace_back(by_devices.columns().begin(), by_devices.columns().end());
  }
  return renaming;
}

std::vector<PlacedPart> renamed(std::vector<PlacedPart> plan, const RenamedPlaces& names) {
  for (PlacedPart& part : plan) {
    const auto host = static_cast<std::size_t>(part.host);
    part.device = names.devices.at(host).at(static_cast<std::size_t>(part.device));
    part.host = names.hosts[host];
  }
  return plan;
}

double moved_bytes(std::span<const PlacedPart> old, std::span<const PlacedPart> next) {
  std::set<std::string> names;
  std::set<std::tuple<std::string, std::int64_t, std::int64_t>> places;
  for (const PlacedPart& part : old) {
    names.insert(part.name);
    places.emplace(part.name, part.host, part.device);
  }
  double bytes = 0;
  for (const PlacedPart& part : next) {
    if (names.contains(part.name) && !places.contains({part.name, part.host, part.device})) bytes += part.bytes;
  }
  return bytes;
}

}  // namespace maestro
