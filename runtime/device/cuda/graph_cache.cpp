#include "runtime/device/cuda/graph_cache.hpp"

#include <chrono>
#include <exception>

namespace maestro::cuda {

namespace {

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { static_cast<void>(cudaGraphDestroy(graph)); }
};

}  // namespace

GraphCache::GraphCache(WorkStream& work, std::shared_ptr<EventPool> events, std::function<void(const std::string&)> say,
                       const GraphPolicyOptions& options)
    : work_(work), events_(std::move(events)), say_(std::move(say)), policy_(options) {}

GraphCache::~GraphCache() {
  static_cast<void>(cudaStreamSynchronize(work_.stream.get()));  // GR-3
}

void GraphCache::run(GraphKey key, const std::function<void()>& issue) {
  destroy_retired();
  const GraphAction action = policy_.next(key);
  if (action == GraphAction::plain) return issue_plainly(key, issue);
  if (action == GraphAction::record) {
    std::string why;
    Graph graph = record(issue, why);
    if (graph == nullptr) {
      policy_.failed(key);
      if (!std::exchange(failure_said_, true)) say_("some work of the device is not replayed as a graph: " + why);
      return issue();  // GR-2
    }
    graphs_.insert_or_assign(key, std::move(graph));
    if (const auto gone = policy_.recorded(key)) retire(*gone);
  }
  check(cudaGraphLaunch(graphs_.at(key).get(), work_.stream.get()), "replaying a graph");
}

void GraphCache::issue_plainly(GraphKey key, const std::function<void()>& issue) {
  const auto begin = std::chrono::steady_clock::now();
  issue();
  policy_.issued(key, std::chrono::steady_clock::now() - begin);
}

GraphCache::Graph GraphCache::record(const std::function<void()>& issue, std::string& why) {
  const std::lock_guard capture(work_.capture);  // DS-2
  cudaError_t result = cudaStreamBeginCapture(work_.stream.get(), cudaStreamCaptureModeThreadLocal);
  if (result == cudaSuccess) {
    try {
      issue();
    } catch (const std::exception& failed) {
      why = failed.what();
    }
    cudaGraph_t captured = nullptr;
    result = cudaStreamEndCapture(work_.stream.get(), &captured);
    const std::unique_ptr<CUgraph_st, DestroyGraph> graph(captured);
    cudaGraphExec_t executable = nullptr;
    if (result == cudaSuccess && why.empty()) result = cudaGraphInstantiate(&executable, captured, 0);
    if (result == cudaSuccess && why.empty()) return Graph(executable);
  }
  static_cast<void>(cudaGetLastError());  // the work is issued plainly now, and must not be blamed for it
  if (why.empty()) why = cudaGetErrorString(result);
  return nullptr;
}

void GraphCache::retire(GraphKey key) {
  const auto found = graphs_.find(key);
  PooledEvent event = events_->take();
  check(cudaEventRecord(event.get(), work_.stream.get()), "the end of a graph");
  retired_.push_back({std::move(found->second), std::move(event)});
  graphs_.erase(found);
}

void GraphCache::destroy_retired() {
  if (retired_.empty()) return;
  std::erase_if(retired_, [](const Retired& each) { return cudaEventQuery(each.last_use.get()) != cudaErrorNotReady; });
  static_cast<void>(cudaGetLastError());  // that one is not ready is no error of this thread's next call
}

}  // namespace maestro::cuda
