// SPDX-License-Identifier: Apache-2.0
// Fuzz target for Thrift frames: each input is a stream that a client sends to the rendezvous and to the control
// service, and an answer that their clients and a served module's client receive. Streams are in memory; limits and
// wire format equal RpcServer's and RpcClient's. Each input is also a launcher's variables, one line NAME=VALUE each.
#include <thrift/Thrift.h>
#include <thrift/protocol/TProtocol.h>
#include <thrift/transport/TBufferTransports.h>

#include <map>
#include <memory>
#include <optional>
#include <sstream>

#include "actors/control/Control.h"
#include "actors/launch/Rendezvous.h"
#include "actors/launch/join_check.hpp"
#include "actors/launch/joining.hpp"
#include "actors/launch/launch_info.hpp"
#include "actors/rpc/framed_protocol.hpp"
#include "actors/served/ServedModule.h"
#include "actors/served/module_report.hpp"
#include "fuzz_target.hpp"

namespace maestro::fuzz {
namespace {

using apache::thrift::TException;
using apache::thrift::TProcessor;
using apache::thrift::protocol::TProtocol;
using apache::thrift::transport::TMemoryBuffer;

constexpr std::int32_t largest_message = 4 << 20;

std::shared_ptr<TProtocol> protocol_of(std::string_view bytes) {
  const auto stream = std::make_shared<TMemoryBuffer>();
  stream->write(reinterpret_cast<const std::uint8_t*>(bytes.data()), static_cast<std::uint32_t>(bytes.size()));
  return framed_protocol(stream, largest_message);
}

/// Judges join requests as rank 0 does.
class Rendezvous final : public rendezvous::RendezvousNull {
 public:
  void join(rendezvous::Answer&, const rendezvous::Joining& joining) override {
    if (const auto refusal = check_.admit(request_of(joining))) check_refusal(refusal->reason);
    check_refusal("missing: " + check_.missing_text());
  }
  void withdraw(const rendezvous::Joining& joining, const std::string& reason) override {
    check_refusal(process_name(request_of(joining)) + peer_text(reason));
  }

 private:
  JoinCheck check_{{.processes = 4, .host = "a", .version = "0.1.0", .token = "t", .job = "[train]\nsteps = 3\n"},
                   {0, 0, 1, 1}};
};

/// Serves a stream to its end, or until an exception closes the connection.
void serve(const std::shared_ptr<TProcessor>& processor, std::string_view bytes) {
  const auto answers = framed_protocol(std::make_shared<TMemoryBuffer>(), largest_message);
  try {
    const auto calls = protocol_of(bytes);
    while (processor->process(calls, answers, nullptr)) {
    }
  } catch (const TException&) {  // the server closes the connection
  }
}

/// Calls `receive` on a client whose service has sent the bytes.
template <class Client, class Receive>
void receive(std::string_view bytes, Receive receive_answer) {
  try {
    Client client(protocol_of(bytes));
    receive_answer(client);
  } catch (const TException&) {  // RpcClient reports it
  }
}

void receive_of_control(std::string_view bytes) {
  using control::ControlClient;
  receive<ControlClient>(bytes, [](auto& client) {
    control::Status answer;
    client.recv_status(answer);
  });
  receive<ControlClient>(bytes, [](auto& client) {
    control::Plan answer;
    client.recv_plan(answer);
  });
  receive<ControlClient>(bytes, [](auto& client) {
    control::Metrics answer;
    client.recv_metrics(answer);
  });
  receive<ControlClient>(bytes, [](auto& client) {
    control::Checkpoint answer;
    client.recv_checkpoint(answer);
  });
  receive<ControlClient>(bytes, [](auto& client) {
    control::Standing answer;
    client.recv_pause(answer);
  });
}

void receive_of_rendezvous(std::string_view bytes) {
  using rendezvous::RendezvousClient;
  receive<RendezvousClient>(bytes, [](auto& client) {
    rendezvous::Answer answer;
    client.recv_join(answer);
  });
  receive<RendezvousClient>(bytes, [](auto& client) { client.recv_withdraw(); });
}

void receive_of_served(std::string_view bytes) {
  using served::ServedModuleClient;
  receive<ServedModuleClient>(bytes, [](auto& client) {
    served::Module answer;
    client.recv_open(answer);
    try {
      const ServedModule module = checked_module(answer);
      check_refusal("difference: " + difference(module, {}, true) + difference({}, module, false));
    } catch (const JobError& error) {
      check_refusal(error.what());
    }
  });
  receive<ServedModuleClient>(bytes, [](auto& client) {
    served::PassResult answer;
    client.recv_forward(answer);
  });
  receive<ServedModuleClient>(bytes, [](auto& client) {
    std::vector<served::Tensor> answer;
    client.recv_backward(answer);
  });
}

void find_place(std::string_view variables) {
  std::map<std::string, std::string, std::less<>> values;
  std::istringstream lines{std::string(variables)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t sign = line.find('=');
    if (sign != std::string::npos) values[line.substr(0, sign)] = line.substr(sign + 1);
  }
  const Environment environment = [&](std::string_view name) -> std::optional<std::string> {
    const auto at = values.find(name);
    return at == values.end() ? std::nullopt : std::optional(at->second);
  };
  accepts([&] {
    const ProcessEnv place = find_run_place({.joins = true}, environment).place;
    require(std::ssize(place.hosts) == place.processes, "every process has a host");
    require(!place.joins.empty() || (place.rank >= 0 && place.rank < place.processes), "a rank is one of the job's");
  });
}

}  // namespace
}  // namespace maestro::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace maestro;
  const std::string_view bytes = fuzz::text_of(data, size);
  fuzz::serve(std::make_shared<rendezvous::RendezvousProcessor>(std::make_shared<fuzz::Rendezvous>()), bytes);
  fuzz::serve(std::make_shared<control::ControlProcessor>(std::make_shared<control::ControlNull>()), bytes);
  fuzz::receive_of_control(bytes);
  fuzz::receive_of_rendezvous(bytes);
  fuzz::receive_of_served(bytes);
  fuzz::find_place(bytes);
  return 0;
}
