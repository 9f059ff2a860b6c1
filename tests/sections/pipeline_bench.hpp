// SPDX-License-Identifier: Apache-2.0
// Runs a section that is partitioned into pipeline stages, all in a single thread: stages forward in order with whole
// streams handed on, then backward in reverse; each stage on any layout of ranks (ParallelBench).
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "tests/sections/parallel_bench.hpp"

namespace maestro::testing {

inline constexpr std::int64_t staged_layers = 3;  ///< of the models in tests of stages

/// A section's context as one of `count` stages of `layers` layers.
SectionContext stage_context(SectionContext context, std::int64_t index, std::int64_t count, std::int64_t layers);

class PipelineBench {
 public:
  struct Cut {
    std::int64_t stages = 1;
    std::int64_t layers = 1;  ///< of the model
    Layout layout = {};       ///< of every stage
  };
  /// `context` as of the uncut section.
  PipelineBench(const Cut& cut, const SectionContext& context, const ParallelBench::Build& build);

  /// As ParallelBench::run; a feed goes to the stage that has its port, and has a gradient in the first. The gradients
  /// of tensors that the first and the last stage both hold are added up in both.
  ParallelPass run(const Batch& batch, Pass pass = Pass::train, const std::vector<Feed>& feeds = {});

  [[nodiscard]] std::int64_t stages() const { return static_cast<std::int64_t>(stages_.size()); }
  [[nodiscard]] ParallelBench& stage(std::int64_t index) { return stages_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] std::int64_t ranks() const { return layout_.ranks(); }
  /// A flat buffer of the tensors that all stages store, sorted by name.
  [[nodiscard]] TensorSnapshot whole(ParameterBuffer which = ParameterBuffer::values);
  /// Every stage and rank takes its part of the whole model.
  void load(const TensorSnapshot& whole);
  /// As SectionRunner counts it, over ranks and stages.
  [[nodiscard]] double gradient_sum_of_squares();

 private:
  [[nodiscard]] std::vector<Feed> feeds_of(std::int64_t stage, const std::vector<Feed>& feeds,
                                           const ParallelPass* before);
  void add_tied_gradients();

  SectionContext context_;
  Layout layout_;
  std::deque<ParallelBench> stages_;
};

/// The snapshot with its tensors sorted by name.
[[nodiscard]] TensorSnapshot by_name(TensorSnapshot snapshot);

}  // namespace maestro::testing
