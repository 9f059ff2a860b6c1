// SPDX-License-Identifier: Apache-2.0
// Runs a section that is divided into pipeline stages, all in a single thread: stages run forward in order, passing on
// complete streams, then backward in reverse order; each stage on any layout of ranks (ParallelBench).
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "tests/sections/parallel_bench.hpp"

namespace maestro::testing {

inline constexpr std::int64_t staged_layers = 3;  ///< layers of the models in stage tests

/// Returns a section's context for one of `count` stages, which have `layers` layers together.
SectionContext stage_context(SectionContext context, std::int64_t index, std::int64_t count, std::int64_t layers);

class PipelineBench {
 public:
  struct Cut {
    std::int64_t stages = 1;
    std::int64_t layers = 1;  ///< layers of the model
    Layout layout = {};       ///< layout for every stage
  };
  /// `context` is the context of the undivided section.
  PipelineBench(const Cut& cut, const SectionContext& context, const ParallelBench::Build& build);

  /// Runs a pass like ParallelBench::run. A feed goes to the stage that has its port, and has a gradient in the first
  /// stage. `gradients` by output port go to the stages that have the ports. Gradients of tensors that both the first
  /// and the last stage hold are added up in both. Metrics are summed over stages, as the coordinator does.
  ParallelPass run(const Batch& batch, Pass pass = Pass::train, const std::vector<Feed>& feeds = {},
                   const std::map<std::string, Tensor>& gradients = {});

  /// Sets the hook of every stage and rank, as ParallelBench::set_routes().
  void set_routes(RouteHook* hook) {
    for (ParallelBench& stage : stages_) stage.set_routes(hook);
  }
  [[nodiscard]] std::int64_t stages() const { return static_cast<std::int64_t>(stages_.size()); }
  [[nodiscard]] ParallelBench& stage(std::int64_t index) { return stages_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] std::int64_t ranks() const { return layout_.ranks(); }
  /// Returns a flat buffer of the tensors that all stages store, sorted by name.
  [[nodiscard]] TensorSnapshot whole(ParameterBuffer which = ParameterBuffer::values);
  /// Loads every stage and rank with its part of the complete model.
  void load(const TensorSnapshot& whole);
  /// Returns the sum as SectionRunner counts it, over ranks and stages.
  [[nodiscard]] double gradient_sum_of_squares();

 private:
  [[nodiscard]] std::vector<Feed> feeds_of(std::int64_t stage, const std::vector<Feed>& feeds,
                                           const ParallelPass* before);
  void add_tied_gradients();

  SectionContext context_;
  Layout layout_;
  std::deque<ParallelBench> stages_;
};

[[nodiscard]] TensorSnapshot by_name(TensorSnapshot snapshot);

}  // namespace maestro::testing
