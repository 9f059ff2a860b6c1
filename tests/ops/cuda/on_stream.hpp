// SPDX-License-Identifier: Apache-2.0
// A communicator for ranks on the fake CUDA, whose device memory is CPU memory.
#pragma once

#include <cuda_runtime_api.h>

#include "runtime/collective/communicator.hpp"
#include "runtime/ops/cuda/device_error.hpp"

namespace maestro::cuda {

/// Like NcclCommunicator: a call reads the results of work queued on the stream before it.
class OnStream final : public Communicator {
 public:
  OnStream(Communicator& ranks, cudaStream_t stream) : ranks_(ranks), stream_(stream) {}
  [[nodiscard]] std::int64_t size() const override { return ranks_.size(); }
  [[nodiscard]] std::int64_t rank() const override { return ranks_.rank(); }
  void all_reduce_sum(std::span<float> values) override { settled().all_reduce_sum(values); }
  void all_reduce_max(std::span<float> values) override { settled().all_reduce_max(values); }
  void all_gather_rows(const Tensor& part, const Tensor& whole) override { settled().all_gather_rows(part, whole); }
  void reduce_scatter_rows(const Tensor& whole, const Tensor& part) override {
    settled().reduce_scatter_rows(whole, part);
  }
  void exchange(const Tensor& from, std::span<const BlockTransfer> sends, const Tensor& to,
                std::span<const BlockTransfer> receives) override {
    settled().exchange(from, sends, to, receives);
  }
  void reduce_to_shards(std::span<float> values) override { settled().reduce_to_shards(values); }
  void gather_shards(std::span<float> values) override { settled().gather_shards(values); }
  void abort(const std::string& why) override { ranks_.abort(why); }
  [[nodiscard]] std::string failure() const override { return ranks_.failure(); }

 private:
  Communicator& settled() {
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return ranks_;
  }
  Communicator& ranks_;
  cudaStream_t stream_;
};

}  // namespace maestro::cuda
