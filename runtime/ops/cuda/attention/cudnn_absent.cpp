// SPDX-License-Identifier: Apache-2.0
// CudnnAttention for a build without cudnn-frontend: refuses everything with the reason.
#include "runtime/ops/cuda/attention/cudnn_attention.hpp"
#include "runtime/ops/cuda/device_error.hpp"

namespace maestro::cuda {
namespace {

constexpr const char* absent = "this build has no attention by cuDNN (CMake found no cudnn-frontend)";

}  // namespace

class CudnnAttention::Library {};

CudnnAttention::CudnnAttention(const Launch& /*at*/, const CudnnAttentionOptions& /*options*/) {}
CudnnAttention::~CudnnAttention() = default;

std::string CudnnAttention::refusal(const AttentionShape& /*shape*/, DType /*act*/,
                                    const SequenceSummary& /*summary*/) {
  return absent;
}

void CudnnAttention::forward(const CudnnForward& /*tensors*/, const AttentionShape& /*shape*/,
                             const CudnnSequences& /*sequences*/) {
  throw DeviceError(absent);
}

void CudnnAttention::backward(const CudnnForward& /*tensors*/, const CudnnBackward& /*gradients*/,
                              const AttentionShape& /*shape*/, const CudnnSequences& /*sequences*/) {
  throw DeviceError(absent);
}

std::size_t CudnnAttention::plans() const {
  return 0;
}

}  // namespace maestro::cuda
