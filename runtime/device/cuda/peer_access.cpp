// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/peer_access.hpp"

#include "runtime/device/cuda/stream.hpp"

namespace maestro::cuda {

namespace {

void let_reach(int device, int peer) {
  const CurrentDevice current(device);
  int possible = 0;
  cudaError_t result = cudaDeviceCanAccessPeer(&possible, device, peer);
  constexpr unsigned no_flags = 0;
  if (result == cudaSuccess && possible != 0) result = cudaDeviceEnablePeerAccess(peer, no_flags);
  if (result != cudaSuccess) static_cast<void>(cudaGetLastError());  // no path; or another library was first
}

}  // namespace

void PeerAccess::opened(int index) {
  const std::lock_guard lock(mutex_);
  if (!devices_.insert(index).second) return;
  for (const int other : devices_) {
    if (other == index) continue;
    let_reach(index, other);
    let_reach(other, index);
  }
}

}  // namespace maestro::cuda
