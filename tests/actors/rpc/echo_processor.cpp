// SPDX-License-Identifier: Apache-2.0
#include "echo_processor.hpp"

#include <thrift/TApplicationException.h>
#include <thrift/protocol/TProtocol.h>

#include "actors/rpc/rpc_client.hpp"

namespace maestro {
namespace {

namespace protocol = apache::thrift::protocol;

/// Reads a struct and returns the last string of field `wanted`.
std::string read_string_field(protocol::TProtocol& in, std::int16_t wanted) {
  std::string name;
  std::string found;
  in.readStructBegin(name);
  while (true) {
    protocol::TType type = protocol::T_STOP;
    std::int16_t id = 0;
    in.readFieldBegin(name, type, id);
    if (type == protocol::T_STOP) break;
    if (id == wanted && type == protocol::T_STRING) {
      in.readString(found);
    } else {
      in.skip(type);
    }
    in.readFieldEnd();
  }
  in.readStructEnd();
  in.readMessageEnd();
  return found;
}

void write_string_message(protocol::TProtocol& out, protocol::TMessageType type, std::int16_t field,
                          const std::string& text) {
  out.writeMessageBegin("echo", type, 0);
  out.writeStructBegin("echo");
  out.writeFieldBegin("text", protocol::T_STRING, field);
  out.writeString(text);
  out.writeFieldEnd();
  out.writeFieldStop();
  out.writeStructEnd();
  out.writeMessageEnd();
  out.getTransport()->flush();
}

class EchoProcessor final : public apache::thrift::TProcessor {
 public:
  explicit EchoProcessor(std::string prefix) : prefix_(std::move(prefix)) {}
  bool process(std::shared_ptr<protocol::TProtocol> in, std::shared_ptr<protocol::TProtocol> out, void*) override {
    std::string name;
    protocol::TMessageType type = protocol::T_CALL;
    std::int32_t sequence = 0;
    in->readMessageBegin(name, type, sequence);
    write_string_message(*out, protocol::T_REPLY, 0, prefix_ + read_string_field(*in, 1));
    return true;
  }

 private:
  std::string prefix_;
};

}  // namespace

std::shared_ptr<apache::thrift::TProcessor> echo_processor(std::string prefix) {
  return std::make_shared<EchoProcessor>(std::move(prefix));
}

std::string echo(RpcClient& connection, const std::string& text) {
  return connection.invoke([&] {
    protocol::TProtocol& wire = *connection.protocol();
    write_string_message(wire, protocol::T_CALL, 1, text);
    std::string name;
    protocol::TMessageType type = protocol::T_REPLY;
    std::int32_t sequence = 0;
    wire.readMessageBegin(name, type, sequence);
    return read_string_field(wire, 0);
  });
}

}  // namespace maestro
