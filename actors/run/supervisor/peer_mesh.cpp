// SPDX-License-Identifier: Apache-2.0
#include "actors/run/supervisor/peer_mesh.hpp"

#include <algorithm>

namespace maestro {

namespace {
constexpr std::chrono::seconds ping_limit(5);
}  // namespace

void PeerMesh::connect(const PeerList& peers) {
  const ProcessId own = run_.options.process;
  connect_until_ = std::chrono::steady_clock::now() + run_.options.start_timeout;
  for (const PeerAddress& peer : peers.all) {
    if (peer.process == ProcessId(0) || peer.process == own) continue;
    if (peers.late || peer.process < own) connect_to(peer);
  }
}

void PeerMesh::connect_to(const PeerAddress& peer) {
  run_.options.connect(
      run_.self, peer.host, peer.port, [this, peer](const caf::actor& supervisor) { ping(peer, supervisor); },
      [this, peer](const std::string& problem) { cannot_connect(peer, problem); });
}

/// Sends a message over a new connection and awaits the answer. CAF may otherwise treat the connection as silent and
/// end it.
void PeerMesh::ping(const PeerAddress& peer, const caf::actor& supervisor) {
  run_.self->request(supervisor, ping_limit, Ping{run_.options.process})
      .then([this, peer, supervisor](const Ping&) { pinged_(peer.process, supervisor); },
            [this, peer](const caf::error& problem) {
              if (std::chrono::steady_clock::now() < connect_until_) return connect_to(peer);
              cannot_connect(peer, run_.self->system().render(problem));
            });
}

void PeerMesh::cannot_connect(const PeerAddress& peer, const std::string& problem) const {
  failed_(run_.own_name() + " cannot connect to process " + std::to_string(peer.process.value()) + " at " + peer.host +
          ":" + std::to_string(peer.port) + ": " + problem +
          "; check the network between the hosts; over long distances raise train.peer_timeout_s");
}

void PeerMesh::connect_memory() {
  for (const ProcessInfo& peer : run_.directory.processes) {
    if (transported_.insert(peer.process).second && run_.options.connect_transport)
      run_.options.connect_transport(peer);
  }
}

void PeerMesh::watch(const ProcessInfo& peer) {
  if (peers_.insert_or_assign(peer.supervisor.address(), peer).second) run_.self->monitor(peer.supervisor);
  watch_.add(peer.process);
}

void PeerMesh::forget(ProcessId process, bool lost) {
  const auto found = find(process);
  if (found == peers_.end()) return;
  if (lost) {
    run_.options.placements.host->remove(found->second, run_.membership.on_this_host(process));
  } else {
    run_.options.placements.host->left(process);
  }
  watch_.remove(process);
  transported_.erase(process);
  peers_.erase(found);
}

void PeerMesh::send_heartbeats() const {
  for (const auto& [address, peer] : peers_) send_to(run_.self, peer.supervisor, Heartbeat{run_.options.process});
}

std::vector<ProcessInfo> PeerMesh::silent() {
  std::vector<ProcessInfo> silent;
  for (const ProcessId process : watch_.silent(run_.self->clock().now())) {
    if (const auto found = find(process); found != peers_.end()) silent.push_back(found->second);
  }
  return silent;
}

const ProcessInfo* PeerMesh::find(const caf::actor_addr& supervisor) const {
  const auto found = peers_.find(supervisor);
  return found == peers_.end() ? nullptr : &found->second;
}

PeerMesh::Peers::const_iterator PeerMesh::find(ProcessId process) const {
  return std::ranges::find_if(peers_, [&](const auto& entry) { return entry.second.process == process; });
}

}  // namespace maestro
