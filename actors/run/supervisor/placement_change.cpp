// SPDX-License-Identifier: Apache-2.0
#include "actors/run/supervisor/placement_change.hpp"

#include <algorithm>
#include <utility>

namespace maestro {

bool PlacementChange::begin(Epoch epoch, Directory directory) {
  if (under_way()) return false;
  epoch_ = epoch;
  connecting_ = false;
  directory_ = std::move(directory);
  arrivals_.clear();
  await_all();
  return true;
}

void PlacementChange::await_all() {
  for (const ProcessInfo& process : directory_.processes) missing_.insert(process.process);
}

bool PlacementChange::answered(Epoch epoch, ProcessId process, bool connecting) {
  if (epoch != epoch_ || connecting != connecting_) return false;
  return missing_.erase(process) > 0 && missing_.empty();
}

bool PlacementChange::taken(const PlacementsTaken& answer) {
  if (answer.epoch != epoch_ || connecting_ || !missing_.contains(answer.process)) return false;
  std::ranges::find(directory_.processes, answer.process, &ProcessInfo::process)->replicas = answer.replicas;
  std::ranges::copy(answer.arrivals, std::back_inserter(arrivals_));
  if (!answered(answer.epoch, answer.process, false)) return false;
  connecting_ = true;
  await_all();
  return true;
}

bool PlacementChange::ready(const PlacementsReady& answer) {
  return answered(answer.epoch, answer.process, true);
}

}  // namespace maestro
