// SPDX-License-Identifier: Apache-2.0
// The other process of the transport tests: `transfer_peer PROVIDER BYTES`.
//
// Prints its address and region, then executes one command per line of its standard input:
//   await N                     waits for N remote writes in all, answers "digest D" for its region
//   write TARGET BYTES CHUNK    writes BYTES of pattern 1 in chunks, answers "done"
//   flood TARGET CHUNK          writes chunks until it is killed; answers "flooding" first
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <vector>

#include "tests/transport/fabric/event_log.hpp"
#include "tests/transport/fabric/transfer_wire.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/ring/chunk_plan.hpp"

namespace maestro::testing {
namespace {

class TransferPeer {
 public:
  TransferPeer(const std::string& provider, std::size_t bytes)
      : memory_(bytes),
        endpoint_(Endpoint::open({provider, "127.0.0.1", 20000, events_.handler()}).value_or_throw()),
        region_(endpoint_->register_memory(memory_.data(), memory_.size()).value_or_throw()) {}

  void introduce() const { std::cout << WireTarget{endpoint_->address(), region_.remote()} << std::endl; }

  void obey(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "await") await(words);
    if (command == "write") write(words);
    if (command == "flood") flood(words);
  }

 private:
  void await(std::istream& words) {
    std::size_t count = 0;
    words >> count;
    const bool came = events_.wait_until([&](const auto& seen) { return seen.remote.size() >= count; });
    if (came) {
      std::cout << "digest " << digest(memory_) << std::endl;
    } else {
      std::cout << "missing " << count - events_.seen().remote.size() << std::endl;
    }
  }
  WriteRequest request_to(const WireTarget& target, PeerHandle peer, Chunk chunk) const {
    return {peer, &region_, chunk.offset, chunk.bytes, target.region, chunk.offset, 7, chunk.offset};
  }
  void write(std::istream& words) {
    WireTarget target;
    std::size_t bytes = 0;
    std::size_t chunk_bytes = 0;
    words >> target >> bytes >> chunk_bytes;
    fill_pattern({memory_.data(), bytes}, 1);
    const auto peer = endpoint_->connect(target.address).value_or_throw();
    const ChunkPlan plan(bytes, chunk_bytes);
    for (const auto chunk : plan) endpoint_->write(request_to(target, peer, chunk));
    const bool done = events_.wait_until([&](const auto& seen) { return seen.done.size() == plan.size(); });
    std::cout << (done ? "done" : "unfinished") << std::endl;
  }
  void flood(std::istream& words) {
    WireTarget target;
    std::size_t chunk_bytes = 0;
    words >> target >> chunk_bytes;
    const auto peer = endpoint_->connect(target.address).value_or_throw();
    std::cout << "flooding" << std::endl;
    for (int sent = 0;; ++sent) {
      if (sent >= 16 && !events_.wait_until([&](const auto& seen) {
            return seen.failures > 0 || (seen.done.count(0) != 0 && seen.done.at(0) > sent - 16);
          })) {
        return;
      }
      endpoint_->write(request_to(target, peer, {0, chunk_bytes}));
    }
  }

  EventLog events_;
  std::vector<std::byte> memory_;
  std::unique_ptr<Endpoint> endpoint_;
  Region region_;
};

}  // namespace
}  // namespace maestro::testing

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: transfer_peer PROVIDER BYTES\n";
    return 2;
  }
  try {
    maestro::testing::TransferPeer peer(argv[1], static_cast<std::size_t>(std::atoll(argv[2])));
    peer.introduce();
    for (std::string line; std::getline(std::cin, line);) peer.obey(line);
  } catch (const maestro::JobError& error) {
    std::cerr << "transfer_peer: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
