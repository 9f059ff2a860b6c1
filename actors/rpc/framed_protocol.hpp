// SPDX-License-Identifier: Apache-2.0
// The wire form of all RPC: TFramedTransport with strict TBinaryProtocol and a limit for the size of a message.
#pragma once

#include <cstdint>
#include <memory>

namespace apache::thrift::protocol {
class TProtocol;
}
namespace apache::thrift::transport {
class TTransport;
}

namespace maestro {

/// Returns the protocol over a stream. A message or text with more than `largest_message` bytes, or a list with more
/// elements than its message has bytes, fails with an exception of Thrift.
[[nodiscard]] std::shared_ptr<apache::thrift::protocol::TProtocol> framed_protocol(
    const std::shared_ptr<apache::thrift::transport::TTransport>& stream, std::int32_t largest_message);

}  // namespace maestro
