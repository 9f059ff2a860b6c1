// SPDX-License-Identifier: Apache-2.0
// Writes a rank's part of the trace: its passes, waits and transfers, and the arrows between passes of different
// replicas. While tracing is off, every function returns at once.
//
// Slices of a track do not overlap: concurrent transfers are shown one after another. An arrow starts in the slice of
// the pass that made a piece and ends in the slice of the pass that reads it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/replica/replica_ports.hpp"
#include "runtime/observe/trace.hpp"

namespace maestro {

/// A pass' micro-batch, which identifies the pass in its step's plan.
struct TracedBatch {
  std::uint32_t index = 0;  ///< MicroBatchPlan::index
  std::int64_t rows = 0;    ///< rows on the section's axis
  Pass pass = Pass::train;
};

/// A job on the device, recorded by the device's thread, which may outlive the replica.
struct TracedWork {
  using Arrows = std::vector<std::pair<std::uint64_t, std::string_view>>;  ///< number and name; the graph owns names
  TraceRecorder* recorder = nullptr;
  TrackId track;
  std::string_view label;
  TraceCategory category = TraceCategory::step;
  StepId step;
  std::optional<TracedBatch> batch;      ///< a pass' micro-batch
  std::optional<std::size_t> sequences;  ///< sequences that a generator continues
  Arrows in;
  Arrows out;
  /// Records the job from `begin` to now.
  void finished(TraceTime begin) const;
};

/// The rank that is traced.
struct TracedRank {
  SectionId section;
  ReplicaIndex replica;
  LayoutRank layout_rank;
};

/// Not thread-safe; belongs to the replica's actor. Recorder and graph outlive it and all TracedWork.
class ReplicaTrace {
 public:
  ReplicaTrace(TraceRecorder& recorder, const SectionGraph& graph, const TracedRank& rank);

  [[nodiscard]] bool on() const { return recorder_->on(); }
  /// `label` must outlive the work: a literal.
  [[nodiscard]] TracedWork work(std::string_view label, TraceCategory category, StepId step) const;
  /// Adds the micro-batch and the arrows of a pass.
  void add_pass(TracedWork& work, const MicroBatchPlan& plan, bool forward, bool backward) const;
  void waited(TraceTime since, const std::string& reason) const;
  /// Records a transfer that ends now.
  void transferred(const Transfer& transfer);

 private:
  TraceRecorder* recorder_;
  const SectionGraph* graph_;
  TracedRank rank_;
  TrackId track_;
  TrackId transfers_;
  TraceTime transfers_end_;  // end of the last slice
};

}  // namespace maestro
