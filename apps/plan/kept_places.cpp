// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/kept_places.hpp"

#include <algorithm>
#include <iterator>
#include <set>

#include "apps/plan/planned_keys.hpp"
#include "runtime/core/device_id.hpp"
#include "runtime/schedule/renamed_places.hpp"

namespace maestro {

namespace {

constexpr std::int64_t most_hosts = 4096;

/// Returns the parts of a section, by replica, stage and rank, as its keys place them.
std::vector<PlacedPart> parts_of(const JobTable& section, double bytes, std::int64_t devices_of_host) {
  const auto stages = section.integer("pipeline", 1);
  const auto ranks = section.integer("tensor", 1) * section.integer("context", 1);
  const std::vector<std::string> devices = section.texts("devices", {});
  const std::vector<std::int64_t> processes = section.integers("processes", {0, most_hosts - 1});
  if (devices.empty() || processes.empty()) {
    section.fail("devices",
                 "`devices` or `processes` is missing; --from takes a job that plan has written for a cluster");
  }
  if (std::ssize(devices) != std::ssize(processes) * ranks || std::ssize(processes) % stages != 0) {
    section.fail("devices", "expected " + std::to_string(std::ssize(processes) * ranks) + " devices for its processes");
  }
  std::vector<PlacedPart> parts;
  for (std::int64_t at = 0; at < std::ssize(devices); ++at) {
    const auto device = parse_device(devices[static_cast<std::size_t>(at)]);
    if (!device || device->index >= devices_of_host) section.fail("devices", "a host has fewer devices");
    const std::int64_t stage = at / ranks;
    parts.push_back({section.name() + ".stage" + std::to_string(stage % stages) + ".rank" + std::to_string(at % ranks),
                     processes[static_cast<std::size_t>(stage)], device->index, bytes});
  }
  return parts;
}

}  // namespace

KeptPlaces kept_places(const JobDocument& old, const JobDocument& next, std::vector<std::string> settings,
                       const std::map<std::string, double>& bytes, std::int64_t devices_of_host) {
  std::vector<PlacedPart> before;
  std::vector<PlacedPart> after;
  std::map<std::string, std::size_t> first;  // part of each section
  for (const auto& [section, of_device] : bytes) {
    const auto more = parts_of(old.root().table(section), of_device, devices_of_host);
    before.insert(before.end(), more.begin(), more.end());
    first[section] = after.size();
    const auto placed = parts_of(next.root().table(section), of_device, devices_of_host);
    after.insert(after.end(), placed.begin(), placed.end());
  }
  std::int64_t hosts = 0;
  for (const auto* const parts : {&before, &after}) {
    for (const PlacedPart& part : *parts) hosts = std::max(hosts, part.host + 1);
  }
  const std::vector<PlacedPart> named = renamed(after, renamed_places(before, after, hosts, devices_of_host));
  std::set<std::int64_t> used;
  KeptPlaces kept;
  for (const PlacedPart& part : named) {
    used.insert(part.host);
    kept.bytes += part.bytes;
  }
  kept.moved_bytes = moved_bytes(before, named);
  kept.hosts.assign(used.begin(), used.end());
  std::erase_if(settings, [](const std::string& each) {
    const std::string key = each.substr(0, each.find('='));
    return key.ends_with(".devices") || key.ends_with(".processes");
  });
  for (const auto& [section, of_device] : bytes) {
    const JobTable table = next.root().table(section);
    const auto ranks = table.integer("tensor", 1) * table.integer("context", 1);
    std::vector<int> devices;
    std::vector<std::int64_t> processes;
    for (std::int64_t at = 0; at < std::ssize(table.texts("devices", {})); ++at) {
      const PlacedPart& part = named[first.at(section) + static_cast<std::size_t>(at)];
      devices.push_back(static_cast<int>(part.device));
      if (at % ranks == 0) processes.push_back(std::distance(used.begin(), used.find(part.host)));
    }
    settings.push_back(section + ".devices=" + devices_text("cuda", devices));
    settings.push_back(section + ".processes=" + list_text(processes));
  }
  kept.settings = std::move(settings);
  return kept;
}

}  // namespace maestro
