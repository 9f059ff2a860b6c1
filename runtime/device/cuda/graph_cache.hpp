// SPDX-License-Identifier: Apache-2.0
// Recorded graphs of repeated work. A replay is a single call on the host.
//
// GR-1 (same work): run() queues the same work whether it issues, records or replays it.
// GR-2 (failed recordings): a recording that fails leaves nothing queued; the work is issued plainly, then and later,
//       and the failure is reported once.
// GR-3 (delayed destruction): an evicted graph is destroyed, with everything that it keeps, when its last replay is
//       complete.
// GR-4 (no waiting): run() never waits for the device: it reads the times for a decision when the work repeats.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/device/cuda/device_space.hpp"
#include "runtime/device/graph_policy.hpp"

namespace maestro::cuda {

/// Work that a graph can be made of.
class GraphWork {
 public:
  virtual ~GraphWork() = default;
  /// Queues the work.
  virtual void issue() = 0;
  /// Does the part that a recording does not allow, such as taking memory from the system.
  virtual void prepare() {}
  /// Queues the work while it is recorded, only on the stream. The result lives as long as the graph.
  [[nodiscard]] virtual std::shared_ptr<void> record() {
    issue();
    return {};
  }
  /// Returns whether this work equals the work that was recorded with `kept`; if not, its graph is not replayed.
  [[nodiscard]] virtual bool equals(const void* /*kept*/) const { return true; }
  /// Called after the graph was queued, for the first time or again; `kept` is the result of record().
  virtual void replayed(void* /*kept*/) {}
};

/// Belongs to the device's thread.
class GraphCache {
 public:
  /// `report` receives the line of GR-2 (failed recordings). `work` outlives the cache. `timed` events measure times.
  GraphCache(WorkStream& work, std::shared_ptr<EventPool> events, std::shared_ptr<EventPool> timed,
             std::function<void(const std::string&)> report, const GraphPolicyOptions& options = {});
  ~GraphCache();
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;

  /// Issues, records or replays work. Equal work has equal keys; GraphWork::equals() separates different work with the
  /// same key. The calls use no memory spaces. An exception from plainly issued work is passed on. Returns the action
  /// taken.
  GraphAction run(GraphKey key, GraphWork& work);
  [[nodiscard]] std::size_t graphs() const { return graphs_.size(); }

 private:
  struct Destroy {
    void operator()(cudaGraphExec_t graph) const { static_cast<void>(cudaGraphExecDestroy(graph)); }
  };
  struct Graph {
    std::shared_ptr<void> kept;  // before the graph that refers to it
    std::unique_ptr<CUgraphExec_st, Destroy> executable;
  };
  struct Retired {
    Graph graph;
    PooledEvent last_use;
  };
  struct Timing {
    GraphKey key;
    std::chrono::nanoseconds host;
    PooledEvent begin;
    PooledEvent end;
  };

  void issue_plainly(GraphKey key, GraphWork& work);
  [[nodiscard]] PooledEvent mark();
  /// Passes the measured times to the policy, if the device has reached their end.
  void settle_timing();
  /// Returns null, with a text in `why`, if the recording failed.
  [[nodiscard]] Graph record(GraphWork& work, std::string& why);
  void retire(GraphKey key);
  void destroy_retired();

  WorkStream& work_;
  std::shared_ptr<EventPool> events_;
  std::shared_ptr<EventPool> timed_;
  std::function<void(const std::string&)> report_;
  GraphPolicy policy_;
  bool failure_reported_ = false;
  std::optional<Timing> timing_;  // at most a single measurement at a time
  std::unordered_map<GraphKey, Graph> graphs_;
  std::vector<Retired> retired_;
};

}  // namespace maestro::cuda
