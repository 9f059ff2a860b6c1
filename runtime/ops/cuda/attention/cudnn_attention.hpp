// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN's fused kernels, for bf16. Where it refuses, flash_attention.hpp does the work: callers query
// refusal() first, with the same arguments forward and backward, and use the same implementation for both. Calls only
// enqueue. Memory that they need beside their tensors is taken from the workspace of the stream.
//
// CA-1 (cached refusals): a refusal depends only on device, library, options and the arguments of refusal(). The first
//       query decides it, which builds plans (some tenths of a second), and the cache keeps it.
// CA-3 (determinism): with Options::deterministic equal calls give the same bits, backward too.
// Lengths: sequences that are all equally long have plans of exactly their shape, up to most_dense_plans shapes; all
// others share plans by rounded sizes (cudnn_plan.hpp).
#pragma once

#include <memory>
#include <string>

#include "runtime/ops/cuda/attention/cudnn_plan.hpp"
#include "runtime/ops/cuda/kernels.hpp"

namespace maestro::cuda {

struct CudnnAttentionOptions {
  /// On Hopper the gradients of queries are made in a fixed order by way of a (B, H, S, S) bf16 workspace; without,
  /// they are added up by atomics, in linear memory, and faster. From cuDNN 9.25 on the frontend adds them up in order
  /// in linear memory where CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT (bytes) forbids that workspace. Workspaces of
  /// cuDNN 9.19 on an H200, with and without: 769 and 97 MiB for 32 sequences of 1024 and 12 heads of 64, 1089 and 129
  /// MiB for 4 sequences of 2048 and 32 heads of 64.
  bool deterministic = true;
  /// Plans that want more are refused.
  std::size_t most_workspace_bytes = std::size_t{2} << 30;
};

/// qkv (M, (H + 2G) D) bf16 and so on as in Attention (operators.hpp), in device memory, 16-byte aligned.
struct CudnnForward {
  Tensor qkv;
  Tensor out;
  Tensor lse;  ///< M H numbers in an order of cuDNN's own: for backward() with the same sequences only
};
struct CudnnBackward {
  Tensor dout;
  Tensor dqkv;  ///< overwritten
};
struct CudnnSequences {
  SequenceSummary summary;
  const std::int32_t* offsets = nullptr;  ///< device memory, S + 1
};

/// Serves a single stream; not thread-safe; the device must be current.
class CudnnAttention {
 public:
  static constexpr std::size_t most_dense_plans = 16;

  /// Where cuDNN cannot be initialised, everything is refused.
  explicit CudnnAttention(const Launch& at, const CudnnAttentionOptions& options = {});
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// Why cuDNN is not to be used for this, forward or backward, in words for a log; empty: it is.
  [[nodiscard]] std::string refusal(const AttentionShape& shape, DType act, const SequenceSummary& summary);

  /// Both throw DeviceError, naming the shape, if refusal() refuses the call or cuDNN fails. M = 0 is legal.
  void forward(const CudnnForward& tensors, const AttentionShape& shape, const CudnnSequences& sequences);
  void backward(const CudnnForward& tensors, const CudnnBackward& gradients, const AttentionShape& shape,
                const CudnnSequences& sequences);

  /// Returns the number of shapes that were requested, refused shapes among them.
  [[nodiscard]] std::size_t plans() const;

 private:
  class Library;
  std::unique_ptr<Library> library_;
};

}  // namespace maestro::cuda
