// SPDX-License-Identifier: Apache-2.0
// A test rank with a separate device: a stream, memory and a table with the fake CUDA.
#pragma once

#include <memory>

#include "runtime/device/cuda/device_space.hpp"
#include "runtime/ops/cuda/cuda_operator_table.hpp"
#include "tests/ops/cuda/on_stream.hpp"
#include "tests/ops/parallel_loss.hpp"

namespace maestro::cuda {

class FakeRank {
 public:
  /// `ranks`: communicator of the thread that constructs and uses this rank. `logits_bytes`: the table's option.
  FakeRank(Communicator& ranks, std::size_t logits_bytes)
      : memory_(0, work_, std::make_shared<EventPool>(0)),
        ops_(options(logits_bytes)),
        group_(ranks, work_.stream.get()) {}
  [[nodiscard]] const CudaOperatorTable& ops() const { return ops_; }
  [[nodiscard]] Communicator& group() { return group_; }
  [[nodiscard]] cudaStream_t stream() const { return work_.stream.get(); }
  void settle() const { work_.stream.synchronize(); }
  [[nodiscard]] testing::RankPlace place() {
    return {ops_, &group_, [this] { settle(); }};
  }

 private:
  [[nodiscard]] CudaTableOptions options(std::size_t logits_bytes) {
    CudaTableOptions options;
    options.stream = work_.stream.get();
    options.memory = &memory_;
    options.pinned = &pinned_;
    options.tune = false;
    options.logits_bytes = logits_bytes;
    return options;
  }
  WorkStream work_{Stream()};
  DeviceSpace memory_;
  PinnedSpace pinned_;
  CudaOperatorTable ops_;
  OnStream group_;
};

}  // namespace maestro::cuda
