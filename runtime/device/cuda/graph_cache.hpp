// Recorded graphs of work that repeats, replayed with one call of the host.
//
// GR-1: run() queues the same work whether it issues, records or replays it.
// GR-2: a recording that fails leaves nothing queued; the work is issued plainly, then and later, and that is said
//       once.
// GR-3: a graph that has to go is destroyed when its last replay is complete.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/device/cuda/device_space.hpp"
#include "runtime/device/graph_policy.hpp"

namespace maestro::cuda {

/// Belongs to the device's thread.
class GraphCache {
 public:
  /// `say` gets the one line of GR-2. `work` outlives the cache.
  GraphCache(WorkStream& work, std::shared_ptr<EventPool> events, std::function<void(const std::string&)> say,
             const GraphPolicyOptions& options = {});
  ~GraphCache();
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;

  /// `issue` queues work on the stream and on no other. It may be called once more when a recording fails, so it has no
  /// other effect; what it throws while it is issued plainly is thrown. Equal keys mean equal calls with equal
  /// arguments, addresses and contents of host arguments included. Memory spaces are not used in it.
  void run(GraphKey key, const std::function<void()>& issue);
  [[nodiscard]] std::size_t graphs() const { return graphs_.size(); }

 private:
  struct Destroy {
    void operator()(cudaGraphExec_t graph) const { static_cast<void>(cudaGraphExecDestroy(graph)); }
  };
  using Graph = std::unique_ptr<CUgraphExec_st, Destroy>;
  struct Retired {
    Graph graph;
    PooledEvent last_use;
  };

  void issue_plainly(GraphKey key, const std::function<void()>& issue);
  /// Null and a text in `why` where it failed.
  [[nodiscard]] Graph record(const std::function<void()>& issue, std::string& why);
  void retire(GraphKey key);
  void destroy_retired();

  WorkStream& work_;
  std::shared_ptr<EventPool> events_;
  std::function<void(const std::string&)> say_;
  GraphPolicy policy_;
  bool failure_said_ = false;
  std::unordered_map<GraphKey, Graph> graphs_;
  std::vector<Retired> retired_;
};

}  // namespace maestro::cuda
