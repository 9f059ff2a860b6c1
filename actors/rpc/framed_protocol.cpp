// SPDX-License-Identifier: Apache-2.0
#include "actors/rpc/framed_protocol.hpp"

#include <thrift/TConfiguration.h>
#include <thrift/protocol/TBinaryProtocol.h>
#include <thrift/protocol/TProtocolException.h>
#include <thrift/transport/TBufferTransports.h>

namespace maestro {
namespace {

using apache::thrift::TConfiguration;
using apache::thrift::protocol::TBinaryProtocol;
using apache::thrift::protocol::TProtocol;
using apache::thrift::protocol::TProtocolException;
using apache::thrift::transport::TFramedTransport;
using apache::thrift::transport::TTransport;

/// Refuses a list with more elements than its frame has bytes left. Thrift makes all elements of a list before it reads
/// the first, and counts a struct as zero bytes.
class FramedProtocol final : public TBinaryProtocol {
 public:
  FramedProtocol(const std::shared_ptr<TFramedTransport>& framed, std::int32_t largest)
      : TBinaryProtocol(framed, largest, largest, true, true), framed_(*framed) {}

 private:
  void check(std::uint32_t elements) {
    std::uint32_t left = 0;
    framed_.borrow(nullptr, &left);
    if (elements > left) throw TProtocolException(TProtocolException::SIZE_LIMIT, "a list is longer than its frame");
  }
  void checkReadBytesAvailable(apache::thrift::protocol::TList& list) override { check(list.size_); }
  void checkReadBytesAvailable(apache::thrift::protocol::TSet& set) override { check(set.size_); }
  void checkReadBytesAvailable(apache::thrift::protocol::TMap& map) override { check(map.size_); }

  TFramedTransport& framed_;  // kept alive by the protocol
};

}  // namespace

std::shared_ptr<TProtocol> framed_protocol(const std::shared_ptr<TTransport>& stream, std::int32_t largest_message) {
  const auto limits = std::make_shared<TConfiguration>(largest_message, largest_message);
  return std::make_shared<FramedProtocol>(std::make_shared<TFramedTransport>(stream, limits), largest_message);
}

}  // namespace maestro
