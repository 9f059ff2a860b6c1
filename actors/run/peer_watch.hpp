// SPDX-License-Identifier: Apache-2.0
// Judges which processes of a run have fallen silent, from the heartbeats that supervisors send each other.
//
// PW-1: a peer is reported silent once, when `timeout` has passed without a heartbeat of it.
// PW-2 (own gaps): only time in which this process itself ran counts (RunClock): a process that wakes up gives
//       every peer the time to report again.
#pragma once

#include <map>
#include <vector>

#include "actors/messages/run_clock.hpp"
#include "runtime/core/ids.hpp"

namespace maestro {

/// Not thread-safe.
class PeerWatch {
 public:
  using Time = RunClock::Time;
  using Duration = RunClock::Duration;
  /// How often a supervisor sends heartbeats and calls silent().
  [[nodiscard]] static Duration interval_of(Duration timeout) { return timeout / 8; }

  explicit PeerWatch(Duration timeout) : timeout_(timeout), clock_(interval_of(timeout)) {}

  /// A peer counts as heard when it is added; adding it again changes nothing.
  void add(ProcessId peer) { heard_.try_emplace(peer, clock_.ran()); }
  void remove(ProcessId peer) { heard_.erase(peer); }
  /// A heartbeat of an unknown peer is ignored.
  void heard(ProcessId peer) {
    if (const auto found = heard_.find(peer); found != heard_.end()) found->second = clock_.ran();
  }
  /// Returns the peers that have fallen silent, and forgets them (PW-1).
  std::vector<ProcessId> silent(Time now) {
    const Duration ran = clock_.look(now);
    std::vector<ProcessId> found;
    for (const auto& [peer, at] : heard_) {
      if (ran - at > timeout_) found.push_back(peer);
    }
    for (const ProcessId peer : found) heard_.erase(peer);
    return found;
  }

 private:
  Duration timeout_;
  RunClock clock_;
  std::map<ProcessId, Duration> heard_;  // run time of the last heartbeat
};

}  // namespace maestro
