// SPDX-License-Identifier: Apache-2.0
// The connections of a process's supervisor to the other supervisors (SV-5): connects to them and their memory, watches
// them and exchanges heartbeats with them (SV-2).
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "actors/run/supervisor/peer_watch.hpp"
#include "actors/run/supervisor/supervised_run.hpp"

namespace maestro {

/// Belongs to the supervisor; the run must outlive it.
class PeerMesh {
 public:
  using Peers = std::map<caf::actor_addr, ProcessInfo>;
  using Pinged = std::function<void(ProcessId, const caf::actor& supervisor)>;
  using Failed = std::function<void(const std::string& problem)>;
  /// `pinged` is called after a connection has carried a message in each direction, `failed` if connecting failed.
  PeerMesh(SupervisedRun& run, Pinged pinged, Failed failed)
      : run_(run), pinged_(std::move(pinged)), failed_(std::move(failed)), watch_(run.options.peer_timeout) {}

  /// Connects to the processes after this one in a list; to all of them if this process is late.
  void connect(const PeerList& peers);
  /// Connects to the memory of the directory's processes. Throws JobError.
  void connect_memory();
  /// Watches a process from now on, or updates its information.
  void watch(const ProcessInfo& peer);
  /// Ends watching a process without which the run continues. `lost`: it does not end by itself.
  void forget(ProcessId process, bool lost);
  void heard(ProcessId process) { watch_.heard(process); }
  void send_heartbeats() const;
  /// Returns the processes that have become silent since the previous call.
  [[nodiscard]] std::vector<ProcessInfo> silent();
  /// Returns the process of a watched supervisor; null for others.
  [[nodiscard]] const ProcessInfo* find(const caf::actor_addr& supervisor) const;
  [[nodiscard]] const Peers& peers() const { return peers_; }
  void clear() { peers_.clear(); }

 private:
  void connect_to(const PeerAddress& peer);
  void ping(const PeerAddress& peer, const caf::actor& supervisor);
  void cannot_connect(const PeerAddress& peer, const std::string& problem) const;
  [[nodiscard]] Peers::const_iterator find(ProcessId process) const;

  SupervisedRun& run_;
  Pinged pinged_;
  Failed failed_;
  Peers peers_;
  PeerWatch watch_;
  std::set<ProcessId> transported_;  // processes with connected memory
  std::chrono::steady_clock::time_point connect_until_;
};

}  // namespace maestro
