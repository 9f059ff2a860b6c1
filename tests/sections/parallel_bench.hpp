// SPDX-License-Identifier: Apache-2.0
// Runs a section on all ranks of a replica, each on a thread of its own, and puts the ranks' parts together: for
// comparing any layout with a single rank.
//
// Whole tensors go in, every rank gets its part by the sharding of its port. Whole tensors come out; where several
// ranks hold the same element they must hold the same bits, which is checked on the way.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/collective/communicator.hpp"
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

/// A whole tensor for an input port.
struct Feed {
  std::string port;
  Tensor whole;  ///< (M, columns)
  bool differentiable = false;
  std::vector<bool> taken = {};  ///< of a chosen port: the samples that have rows; empty: all
};

/// The results of a micro-batch, whole.
struct ParallelPass {
  std::vector<MetricSum> metrics;  ///< summed over ranks
  std::map<std::string, OwnedTensor> outputs;
  std::map<std::string, OwnedTensor> input_gradients;  ///< of differentiable feeds; zero where nothing flowed back
  [[nodiscard]] const MetricSum& metric(const std::string& name) const;
};

class ParallelBench {
 public:
  using Build = std::function<std::unique_ptr<Section>(const SectionContext&)>;
  /// `context` as on a single rank; ranks are built in the caller's thread, each with its own ParallelContext.
  ParallelBench(Layout layout, const SectionContext& context, const Build& build);

  /// A micro-batch forward, and when its pass is train backward from `output_gradients` (whole, by output port).
  /// Inputs "tokens" and "targets" come from the batch. Parameter gradients are those of this pass alone, summed as a
  /// replica sums them at the end of a step. An exception of a rank is thrown here, from the first that failed of
  /// itself.
  ParallelPass run(const Batch& batch, Pass pass = Pass::train, const std::vector<Feed>& feeds = {},
                   const std::map<std::string, Tensor>& output_gradients = {});

  [[nodiscard]] Section& section(std::int64_t rank) { return *ranks_[static_cast<std::size_t>(rank)].section; }
  /// The results of a context part, by tensor index.
  [[nodiscard]] std::vector<Section*> tensor_ranks(std::int64_t context = 0);
  /// A flat buffer of the whole section by stored names, as the first context part holds it.
  [[nodiscard]] TensorSnapshot whole(ParameterBuffer which = ParameterBuffer::values);
  /// Takes over `values`, whole, on every rank.
  void load(const TensorSnapshot& values);
  /// Sum of squares of the summed gradients, each element counted once.
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
  std::vector<std::vector<std::unique_ptr<Communicator>>> tensor_groups_;   // by context part
  std::vector<std::vector<std::unique_ptr<Communicator>>> context_groups_;  // by tensor index
  std::vector<Rank> ranks_;
};

/// Expects every tensor of `found` to be within `tolerance`, relative to its largest element, of the tensor of the same
/// name in `expected`, and the names to be the same. A `floor` is the least that counts as largest.
void expect_close(const TensorSnapshot& found, const TensorSnapshot& expected, double tolerance, double floor = 1e-6);
/// Names, shapes and bits are the same.
void expect_same(const TensorSnapshot& found, const TensorSnapshot& expected);

}  // namespace maestro::testing
