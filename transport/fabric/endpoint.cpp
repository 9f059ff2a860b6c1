// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/endpoint.hpp"

#include <chrono>
#include <mutex>
#include <utility>

#include "transport/fabric/progress_thread.hpp"
#include "transport/region_registration.hpp"

namespace maestro {
namespace {

// Separates the provider's name from the raw bytes in an address.
constexpr char address_separator = '\n';

Error stopped() {
  return {ErrorCode::cancelled, "the endpoint was stopped"};
}

Result<std::string> resolve_provider(const EndpointOptions& options) {
  const auto offered = offered_providers();
  return choose_provider({options.provider, provider_override(), reach_of(options.listen_address), shared_memory_room(),
                          options.shared_memory},
                         offered);
}

}  // namespace

struct Endpoint::State {
  std::string provider;
  std::string address;
  std::shared_ptr<FabricDomain> domain;      // shared with regions, which may outlive the endpoint
  std::shared_ptr<ProgressThread> progress;  // shared with its thread, which may have to be abandoned
  std::mutex mutex;                          // connect, register and stop exclude each other
  bool is_stopped = false;
};

Endpoint::Endpoint(std::unique_ptr<State> state) : state_(std::move(state)) {}

Endpoint::~Endpoint() {
  stop();
}

Result<std::unique_ptr<Endpoint>> Endpoint::open(EndpointOptions options) {
  if (!options.handler) return Error{ErrorCode::invalid_argument, "an endpoint needs a handler for its events"};
  if (options.timeout_ms < 1) {
    return Error{ErrorCode::invalid_argument, "transport.timeout_s: " + std::to_string(options.timeout_ms) +
                                                  " ms is no time at all; use 1 ms or more"};
  }
  auto provider = resolve_provider(options);
  if (!provider) return provider.error();
  auto opened = FabricDomain::open(*provider, options.listen_address,
                                   options.device_memory ? MemoryKinds::host_and_devices : MemoryKinds::host);
  if (!opened) return opened.error();
  auto raw = (*opened)->raw_address();
  if (!raw) return raw.error();

  auto state = std::make_unique<State>();
  state->address = *provider + address_separator + *raw;
  state->provider = *std::move(provider);
  state->domain = *std::move(opened);
  state->progress =
      ProgressThread::start(state->domain, std::chrono::milliseconds(options.timeout_ms), std::move(options.handler));
  return std::unique_ptr<Endpoint>(new Endpoint(std::move(state)));
}

std::string Endpoint::address() const {
  return state_->address;
}
std::string Endpoint::provider() const {
  return state_->provider;
}

Result<PeerHandle> Endpoint::connect(std::string_view address, std::string_view name) {
  const std::string who = name.empty() ? "a peer" : std::string(name);
  const auto separator = address.find(address_separator);
  if (separator == std::string_view::npos || separator + 1 == address.size()) {
    return Error{ErrorCode::invalid_argument, "the transport address of " + who + " is malformed"};
  }
  const auto peer_provider = address.substr(0, separator);
  if (peer_provider != state_->provider) {
    return Error{ErrorCode::invalid_argument, who + " uses provider '" + std::string(peer_provider) +
                                                  "', this process '" + state_->provider +
                                                  "'; set transport.provider to the same value for both"};
  }
  const auto raw = address.substr(separator + 1);
  const std::lock_guard lock(state_->mutex);
  if (state_->is_stopped) return stopped();
  auto inserted = state_->domain->insert(raw);
  if (!inserted) {
    return Error{inserted.error().code, "cannot connect to " + who + " (" + inserted.error().message + ")"};
  }
  const auto readable = state_->domain->readable(raw);
  return state_->progress->add_peer({*inserted, name.empty() ? readable : who + " (" + readable + ")", std::nullopt});
}

void Endpoint::abandon(PeerHandle peer) {
  state_->progress->abandon(peer);
}

Result<Region> Endpoint::register_memory(std::byte* data, std::size_t bytes, const MemoryLocation& place) {
  if (data == nullptr || bytes == 0) return Error{ErrorCode::invalid_argument, "cannot register an empty region"};
  const std::lock_guard lock(state_->mutex);
  if (state_->is_stopped) return stopped();
  auto handle = state_->domain->register_memory(data, bytes, place);
  if (!handle) return handle.error();
  auto registration = std::make_unique<Region::Registration>();
  registration->data = data;
  registration->bytes = bytes;
  registration->domain = state_->domain;
  registration->handle = *std::move(handle);
  return Region(std::move(registration));
}

void Endpoint::write(const WriteRequest& request) {
  state_->progress->write(request);
}

void Endpoint::stop() {
  const bool ended = state_->progress->stop();
  const std::lock_guard lock(state_->mutex);
  if (std::exchange(state_->is_stopped, true)) return;
  if (ended) {
    state_->domain->close_endpoint();
  } else {
    state_->domain->remove_segment();
  }
}

TransferStats Endpoint::stats() const {
  return state_->progress->stats();
}

}  // namespace maestro
