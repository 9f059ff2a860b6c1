// SPDX-License-Identifier: Apache-2.0
// Requests to an endpoint and its events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <variant>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"
#include "transport/region.hpp"

namespace maestro {

/// A peer of one endpoint, counted from 0 in the order of connect().
using PeerHandle = Id<struct PeerTag>;

/// One RMA write. `local` must live until the write is done or has failed. After a failure with code `timeout` the
/// provider may still read the source until the endpoint is stopped.
struct WriteRequest {
  PeerHandle peer;
  const Region* local = nullptr;
  std::size_t local_offset = 0;
  std::size_t bytes = 0;  ///< at least 1
  RemoteRegion remote;
  std::size_t remote_offset = 0;
  std::optional<std::uint32_t> immediate;  ///< delivered to the peer when the bytes are in its memory
  std::uint64_t cookie = 0;                ///< caller's value, returned in WriteDone or WriteFailed
};

/// All bytes of a peer's write are in this process's memory.
struct RemoteWrite {
  std::uint32_t immediate = 0;
};
/// The source may be used again. Only the peer's RemoteWrite shows that the data has arrived.
struct WriteDone {
  std::uint64_t cookie = 0;
};
struct WriteFailed {
  std::uint64_t cookie = 0;
  Error error;
};
/// The endpoint has failed; every write that was not reported yet has failed with it. No event follows. May come from
/// another thread than the progress thread, which is then stuck in the library and calls the handler no more.
struct EndpointFailed {
  Error error;
};
using EndpointEvent = std::variant<RemoteWrite, WriteDone, WriteFailed, EndpointFailed>;

/// Called on the progress thread, one event at a time. Only enqueues, never blocks, never throws.
using EndpointHandler = std::function<void(const EndpointEvent&)>;

/// Totals since the endpoint was opened.
struct TransferStats {
  std::uint64_t writes_done = 0;
  std::uint64_t bytes_done = 0;
  std::uint64_t writes_failed = 0;
  std::uint64_t remote_writes = 0;   ///< completions of peers' writes that carried an immediate
  std::uint64_t receive_errors = 0;  ///< errors of no write of this endpoint, such as a killed sender: not fatal
};

}  // namespace maestro
