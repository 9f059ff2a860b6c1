// SPDX-License-Identifier: Apache-2.0
#include "actors/services/network.hpp"

#include "actors/messages/message_types.hpp"
#include "actors/messages/ready_queue.hpp"
#include "actors/services/write_cookie.hpp"
#include "transport/ring/immediate.hpp"

namespace maestro {

Network::Network(const NetworkOptions& options, bool needed) : options_(options) {
  if (!needed) return;
  EndpointOptions endpoint;
  endpoint.provider = options.provider;
  endpoint.listen_address = options.listen_address;
  endpoint.timeout_ms = options.timeout_ms;
  endpoint.shared_memory = options.shared_memory;
  endpoint.device_memory = options.device_memory;
  endpoint.handler = [this](const EndpointEvent& event) { handle(event); };
  endpoint_ = Endpoint::open(std::move(endpoint)).value_or_throw();
}

Network::~Network() {
  stop();
}

std::string Network::address() const {
  return open() ? endpoint_->address() : std::string();
}
std::string Network::provider() const {
  return open() ? endpoint_->provider() : std::string("in-process");
}

std::unique_ptr<Region> Network::register_memory(std::byte* data, std::size_t bytes) {
  if (!open() || bytes == 0) return nullptr;
  return std::make_unique<Region>(endpoint_->register_memory(data, bytes).value_or_throw());
}

Result<std::unique_ptr<Region>> Network::register_device_memory(std::byte* data, std::size_t bytes, int cuda_device) {
  if (!open()) return Error{ErrorCode::unavailable, "this process has no network endpoint"};
  auto region = endpoint_->register_memory(data, bytes, MemoryLocation{cuda_device});
  if (!region) return region.error();
  return std::make_unique<Region>(*std::move(region));
}

void Network::route_ring(std::uint32_t ring, const caf::actor& receiver) {
  const std::lock_guard lock(mutex_);
  if (rings_.size() <= ring) rings_.resize(ring + 1);
  rings_[ring] = receiver;
}

void Network::route_client(std::uint32_t client, const caf::actor& receiver) {
  const std::lock_guard lock(mutex_);
  if (clients_.size() <= client) clients_.resize(client + 1);
  clients_[client] = receiver;
}

void Network::route_failures(const caf::actor& supervisor) {
  const std::lock_guard lock(mutex_);
  supervisor_ = supervisor;
}

void Network::connect(ProcessId process, const std::string& address, const std::string& name) {
  if (!open()) return;
  const PeerHandle peer = endpoint_->connect(address, name).value_or_throw();
  const std::lock_guard lock(mutex_);
  if (peers_.size() <= process.value()) peers_.resize(process.value() + 1);
  peers_[process.value()] = peer;
}

void Network::write(ProcessId to, WriteRequest request) {
  writes_.fetch_add(1, std::memory_order_relaxed);
  bytes_.fetch_add(request.bytes, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    request.peer = peers_[to.value()];
  }
  endpoint_->write(request);
}

void Network::abandon(ProcessId process) {
  if (!open()) return;
  std::unique_lock lock(mutex_);
  if (process.value() >= peers_.size()) return;
  const PeerHandle peer = peers_[process.value()];
  lock.unlock();
  endpoint_->abandon(peer);
}

void Network::stop() {
  std::vector<caf::actor> rings, clients;  // destroyed without the lock: an actor ends with its last handle
  std::unique_lock lock(mutex_);
  const std::vector<PeerHandle> peers = peers_;
  lock.unlock();
  if (endpoint_ != nullptr) {
    for (const PeerHandle peer : peers) endpoint_->abandon(peer);
    endpoint_->stop();
  }
  lock.lock();
  rings_.swap(rings);
  clients_.swap(clients);
  supervisor_ = nullptr;
}

caf::actor Network::client_of(std::uint64_t cookie) const {
  const std::lock_guard lock(mutex_);
  return clients_.at(unpack_cookie(cookie).client);
}

void Network::handle(const EndpointEvent& event) const {
  if (const auto* landed = std::get_if<RemoteWrite>(&event)) {
    const RunHere here;  // outlives the lock
    const std::lock_guard lock(mutex_);
    send_from_outside(rings_.at(unpack_immediate(landed->immediate).edge.value()), RingEvent{landed->immediate});
  } else if (const auto* done = std::get_if<WriteDone>(&event)) {
    const RunHere here;
    send_from_outside(client_of(done->cookie), WriteFinished{done->cookie});
  } else if (const auto* failed = std::get_if<WriteFailed>(&event)) {
    send_from_outside(client_of(failed->cookie), WriteBroken{failed->cookie, failed->error.message});
  } else if (const auto* broken = std::get_if<EndpointFailed>(&event)) {
    const std::lock_guard lock(mutex_);
    send_from_outside(supervisor_, Failure{"transport: " + broken->error.message, true});
  }
}

}  // namespace maestro
