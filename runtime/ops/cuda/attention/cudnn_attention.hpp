// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN's fused kernels, for bf16. If it refuses, flash_attention.hpp computes the attention: callers
// query refusal() first, with the same arguments forward and backward, and use the same implementation for both. Calls
// only enqueue. Memory in addition to their tensors comes from the stream's workspace.
//
// CA-1 (cached refusals): a refusal depends only on device, library, options and the arguments of refusal(). The first
//       query decides it, which builds plans (some tenths of a second), and the cache keeps it.
// CA-3 (determinism): with Options::deterministic equal calls give the same bits, backward too.
//
// Lengths: sequences of equal length have plans of exactly their shape, up to most_dense_plans shapes; all others share
// plans by rounded sizes (cudnn_plan.hpp).
#pragma once

#include <memory>
#include <string>

#include "runtime/ops/cuda/attention/cudnn_plan.hpp"
#include "runtime/ops/cuda/kernels.hpp"

namespace maestro::cuda {

struct CudnnAttentionOptions {
  /// On Hopper the query gradients are summed in a fixed order through a (B, H, S, S) bf16 workspace; otherwise atomics
  /// sum them faster, in linear memory. From cuDNN 9.25 on the frontend sums them in order in linear memory if
  /// CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT (bytes) forbids that workspace. Workspaces of cuDNN 9.19 on an H200, with
  /// and without: 769 and 97 MiB for (B, S, H, D) = (32, 1024, 12, 64), 1089 and 129 MiB for (4, 2048, 32, 64).
  bool deterministic = true;
  /// Plans that need more are refused.
  std::size_t most_workspace_bytes = std::size_t{2} << 30;
};

/// qkv (M, (H + 2G) D) bf16 and so on as in Attention (operators.hpp), in device memory, 16-byte aligned.
struct CudnnForward {
  Tensor qkv;
  Tensor out;
  Tensor lse;  ///< M H numbers in cuDNN's order: for backward() with the same sequences only
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

  /// If cuDNN cannot be initialised, everything is refused.
  explicit CudnnAttention(const Launch& at, const CudnnAttentionOptions& options = {});
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// Returns the reason, for a log, why cuDNN is not used for this call, forward or backward; empty: it is used.
  [[nodiscard]] std::string refusal(const AttentionShape& shape, DType act, const SequenceSummary& summary);

  /// Both throw DeviceError, naming the shape, if refusal() refuses the call or cuDNN fails. M = 0 is legal.
  void forward(const CudnnForward& tensors, const AttentionShape& shape, const CudnnSequences& sequences);
  void backward(const CudnnForward& tensors, const CudnnBackward& gradients, const AttentionShape& shape,
                const CudnnSequences& sequences);

  /// Returns the number of requested shapes, including refused shapes.
  [[nodiscard]] std::size_t plans() const;

 private:
  class Library;
  std::unique_ptr<Library> library_;
};

}  // namespace maestro::cuda
