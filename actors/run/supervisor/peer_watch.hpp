// SPDX-License-Identifier: Apache-2.0
// Detects silent processes of a run by the heartbeats that supervisors exchange.
//
// HB-1 (reported once): a peer is reported silent once, after `timeout` without its heartbeat.
// HB-2 (local gaps): only time counts during which this process ran (RunClock), so that after a gap every peer has the
//       full time to report again.
#pragma once

#include <map>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/run_clock.hpp"

namespace maestro {

/// Not thread-safe.
class PeerWatch {
 public:
  using Time = RunClock::Time;
  using Duration = RunClock::Duration;
  /// Returns the interval at which a supervisor sends heartbeats and calls silent().
  [[nodiscard]] static Duration interval_of(Duration timeout) { return timeout / 8; }

  explicit PeerWatch(Duration timeout) : timeout_(timeout), clock_(interval_of(timeout)) {}

  /// Adds a peer as if it had just sent a heartbeat. Does nothing for a known peer.
  void add(ProcessId peer) { heard_.try_emplace(peer, clock_.ran()); }
  void remove(ProcessId peer) { heard_.erase(peer); }
  /// Records a heartbeat; ignores unknown peers.
  void heard(ProcessId peer) {
    if (const auto found = heard_.find(peer); found != heard_.end()) found->second = clock_.ran();
  }
  /// Returns newly silent peers and removes them (HB-1).
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
