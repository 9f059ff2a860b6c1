// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/graph_cache.hpp"

#include <exception>
#include <utility>

namespace maestro::cuda {

namespace {

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { static_cast<void>(cudaGraphDestroy(graph)); }
};

}  // namespace

GraphCache::GraphCache(WorkStream& work, std::shared_ptr<EventPool> events, std::shared_ptr<EventPool> timed,
                       std::function<void(const std::string&)> report, const GraphPolicyOptions& options)
    : work_(work), events_(std::move(events)), timed_(std::move(timed)), report_(std::move(report)), policy_(options) {}

GraphCache::~GraphCache() {
  static_cast<void>(cudaStreamSynchronize(work_.stream.get()));  // GR-3
}

GraphAction GraphCache::run(GraphKey key, GraphWork& work) {
  destroy_retired();
  settle_timing();
  const GraphAction action = policy_.next(key);
  if (action == GraphAction::plain) {
    issue_plainly(key, work);
    return action;
  }
  if (action == GraphAction::record) {
    std::string why;
    Graph graph = record(work, why);
    if (graph.executable == nullptr) {
      policy_.failed(key);
      if (!std::exchange(failure_reported_, true))
        report_("some work of the device is not replayed as a graph: " + why);
      work.issue();  // GR-2
      return GraphAction::plain;
    }
    graphs_.insert_or_assign(key, std::move(graph));
    if (const auto gone = policy_.recorded(key)) retire(*gone);
  }
  const Graph& graph = graphs_.at(key);
  if (action == GraphAction::replay && !work.equals(graph.kept.get())) {
    work.issue();
    return GraphAction::plain;
  }
  check(cudaGraphLaunch(graph.executable.get(), work_.stream.get()), "replaying a graph");
  work.replayed(graph.kept.get());
  return action;
}

void GraphCache::issue_plainly(GraphKey key, GraphWork& work) {
  if (timing_ || !policy_.wants_times(key)) {
    work.issue();
    return policy_.issued(key);
  }
  PooledEvent first = mark();
  const auto begin = std::chrono::steady_clock::now();
  work.issue();
  const auto host = std::chrono::steady_clock::now() - begin;
  timing_.emplace(Timing{key, host, std::move(first), mark()});
}

PooledEvent GraphCache::mark() {
  PooledEvent event = timed_->take();
  check(cudaEventRecord(event.get(), work_.stream.get()), "a mark of time");
  return event;
}

void GraphCache::settle_timing() {
  if (!timing_) return;
  const cudaError_t reached = cudaEventQuery(timing_->end.get());
  if (reached == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());  // clears the error for this thread's next call
    return;
  }
  check(reached, "the time of work");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, timing_->begin.get(), timing_->end.get()), "the time of work");
  const std::chrono::duration<float, std::milli> device(milliseconds);
  policy_.timed(timing_->key, timing_->host, std::chrono::duration_cast<std::chrono::nanoseconds>(device));
  timing_.reset();
}

GraphCache::Graph GraphCache::record(GraphWork& work, std::string& why) {
  work.prepare();
  const std::lock_guard capture(work_.capture);  // DS-2
  std::shared_ptr<void> kept;
  cudaError_t result = cudaStreamBeginCapture(work_.stream.get(), cudaStreamCaptureModeThreadLocal);
  if (result == cudaSuccess) {
    try {
      kept = work.record();
    } catch (const std::exception& failed) {
      why = failed.what();
    }
    cudaGraph_t captured = nullptr;
    result = cudaStreamEndCapture(work_.stream.get(), &captured);
    const std::unique_ptr<CUgraph_st, DestroyGraph> graph(captured);
    cudaGraphExec_t executable = nullptr;
    if (result == cudaSuccess && why.empty()) result = cudaGraphInstantiate(&executable, captured, 0);
    if (result == cudaSuccess && why.empty()) return {std::move(kept), {executable, Destroy()}};
  }
  static_cast<void>(cudaGetLastError());  // clears the error: the work is issued plainly now
  if (why.empty()) why = cudaGetErrorString(result);
  return {};
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
  static_cast<void>(cudaGetLastError());  // clears "not ready", which this thread's next call would report
}

}  // namespace maestro::cuda
