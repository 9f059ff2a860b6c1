// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/pinned_staging.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/ops/cuda/device_error.hpp"

namespace maestro::cuda {

PinnedStaging::~PinnedStaging() {
  for (const Sent& sent : sent_) {
    static_cast<void>(cudaEventSynchronize(sent.read));
    static_cast<void>(cudaEventDestroy(sent.read));
    pinned_->release(sent.block, sent.bytes);
  }
}

PinnedStaging::Sent PinnedStaging::take(std::size_t bytes) {
  if (!sent_.empty() && sent_.front().bytes >= bytes && cudaEventQuery(sent_.front().read) == cudaSuccess) {
    const Sent again = sent_.front();
    sent_.pop_front();
    return again;
  }
  static_cast<void>(cudaGetLastError());  // clears "not ready", which the next launch would report
  constexpr std::size_t least = 4096;
  Sent fresh;
  fresh.bytes = std::bit_ceil(std::max(bytes, least));
  fresh.block = pinned_->allocate(fresh.bytes);
  check(cudaEventCreateWithFlags(&fresh.read, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return fresh;
}

void PinnedStaging::put(std::span<const std::byte> values, std::byte* to) {
  if (values.empty()) return;
  const Sent sent = take(values.size());
  std::memcpy(sent.block, values.data(), values.size());
  check(cudaMemcpyAsync(to, sent.block, values.size(), cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync of a list");
  check(cudaEventRecord(sent.read, stream_), "cudaEventRecord");
  sent_.push_back(sent);
}

}  // namespace maestro::cuda
