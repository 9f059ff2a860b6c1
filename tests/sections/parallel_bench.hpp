// SPDX-License-Identifier: Apache-2.0
// Runs a section on all ranks of a replica, each on a separate thread, and assembles the ranks' parts: compares any
// layout with a single rank.
//
// Inputs are complete tensors; every rank gets its part by the port's sharding. Results are complete tensors; if
// several ranks hold the same element, the bench checks that their bits agree.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/collective/communicator.hpp"
#include "sections/expert_routes.hpp"
#include "sections/section.hpp"
#include "sections/state_io.hpp"
#include "tests/ops/owned_tensor.hpp"
#include "tests/sections/section_bench.hpp"

namespace maestro::testing {

/// Returns the values of a snapshot's tensor, to change them.
inline std::span<float> values_in(TensorSnapshot& snapshot, const NamedTensor& named) {
  std::byte* const data = snapshot.memory.data() + (named.tensor.raw() - snapshot.memory.data());
  return Tensor(data, DType::f32, named.tensor.shape()).span<float>();
}

/// A complete tensor for an input port.
struct Feed {
  std::string port;
  Tensor whole;  ///< (M, columns)
  bool differentiable = false;
  std::vector<bool> taken = {};  ///< whether each sample has rows, for a chosen port; empty: all have
};

/// Complete results of a micro-batch.
struct ParallelPass {
  std::vector<MetricSum> metrics;  ///< summed over ranks
  std::map<std::string, OwnedTensor> outputs;
  std::map<std::string, OwnedTensor> input_gradients;  ///< gradients by port; zero if nothing flowed back
  [[nodiscard]] const MetricSum& metric(const std::string& name) const;
};

/// Adds the figures `more` to the sums of the same names.
void add_metrics(std::vector<MetricSum>& sums, const std::vector<MetricSum>& more);

class ParallelBench {
 public:
  using Build = std::function<std::unique_ptr<Section>(const SectionContext&)>;
  /// `context` is the context for a single rank. Ranks are built in the caller's thread, each with a ParallelContext.
  ParallelBench(Layout layout, const SectionContext& context, const Build& build);

  /// Runs a micro-batch forward and, if `pass` is train, backward from the complete `output_gradients` by output port.
  /// Inputs "tokens" and "targets" are from the batch. Parameter gradients cover this pass only, summed as a replica
  /// sums them at the end of a step. Rethrows a rank's exception, from the first rank that failed by itself.
  ParallelPass run(const Batch& batch, Pass pass = Pass::train, const std::vector<Feed>& feeds = {},
                   const std::map<std::string, Tensor>& output_gradients = {});

  [[nodiscard]] Section& section(std::int64_t rank) { return *ranks_[static_cast<std::size_t>(rank)].section; }
  /// Sets every rank's hook into the choice of experts; null: none. The sections are decoders.
  void set_routes(RouteHook* hook);
  /// Returns the sections of consecutive ranks that hold all parameters together; without ranks that share experts, of
  /// a context part.
  [[nodiscard]] std::vector<Section*> holders(std::int64_t copy = 0);
  /// Returns a flat buffer with the complete section by stored names, as the first ranks hold it. Expects the same bits
  /// on the other ranks.
  [[nodiscard]] TensorSnapshot whole(ParameterBuffer which = ParameterBuffer::values);
  /// Loads the complete `values` on every rank.
  void load(const TensorSnapshot& values);
  /// Returns the sum of squares of the summed gradients; each element counts once.
  [[nodiscard]] double gradient_sum_of_squares();

 private:
  struct Rank {
    SectionContext context;
    std::unique_ptr<Section> section;
    std::unique_ptr<Arena> arena;
  };
  struct Work;  // the work of a pass for every rank, and its results
  void on_every_rank(const std::function<void(Rank&)>& work);
  void run_rank(Rank& rank, Work& work);

  Layout layout_;
  std::vector<std::unique_ptr<Communicator>> groups_;
  std::vector<Rank> ranks_;
};

/// Expects equal names, and every tensor in `found` within `tolerance` of the tensor in `expected`, relative to the
/// latter's largest element or `floor` if that is larger.
void expect_close(const TensorSnapshot& found, const TensorSnapshot& expected, double tolerance, double floor = 1e-6);
/// Expects equal names, shapes and bits.
void expect_same(const TensorSnapshot& found, const TensorSnapshot& expected);

}  // namespace maestro::testing
