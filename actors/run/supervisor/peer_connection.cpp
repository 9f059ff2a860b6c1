// SPDX-License-Identifier: Apache-2.0
#include "actors/run/supervisor/peer_connection.hpp"

#include <algorithm>
#include <caf/io/all.hpp>
#include <caf/io/basp_broker.hpp>
#include <caf/io/network/default_multiplexer.hpp>
#include <caf/io/network/stream_impl.hpp>
#include <set>
#include <utility>

#include "actors/rpc/socket_address.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace {

using caf::io::network::default_multiplexer;
using caf::io::network::native_socket;
using caf::io::network::rw_state;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds attempt_limit(5000);
constexpr milliseconds pause(50);
constexpr std::uint16_t any_port = 1;  // CAF names published actors by ports

/// Moves the bytes of CAF's streams. Multiplexer's thread only.
class PeerPolicy {
 public:
  explicit PeerPolicy(TlsSession tls) : tls_(std::move(tls)) {}

  rw_state read_some(std::size_t& moved, native_socket socket, void* buffer, std::size_t size) {
    if (size == 0) return nothing(moved);
    return outcome(moved, receive_some(tls_.get(), socket, buffer, size));
  }
  rw_state write_some(std::size_t& moved, native_socket socket, const void* buffer, std::size_t size) {
    if (size == 0) return nothing(moved);
    return outcome(moved, send_some(tls_.get(), socket, buffer, size));
  }
  /// TLS may hold bytes that the socket no longer announces.
  [[nodiscard]] bool must_read_more(native_socket, std::size_t threshold) const {
    return tls_ && pending_bytes(tls_.get()) >= threshold;
  }

 private:
  static rw_state nothing(std::size_t& moved) {
    moved = 0;
    return rw_state::indeterminate;
  }
  static rw_state outcome(std::size_t& moved, std::int64_t result) {
    moved = result > 0 ? static_cast<std::size_t>(result) : 0;
    return result < 0 ? rw_state::failure : rw_state::success;
  }

  TlsSession tls_;
};

/// A connection in the form of CAF's broker.
class PeerScribe final : public caf::io::scribe {
 public:
  PeerScribe(default_multiplexer& multiplexer, PeerSocket&& peer, int descriptor)
      : scribe(caf::io::connection_handle::from_int(descriptor)),
        name_(peer_name(descriptor)),
        stream_(multiplexer, descriptor, std::move(peer.tls)) {}

  void configure_read(caf::io::receive_policy::config config) override {
    stream_.configure_read(config);
    if (!std::exchange(launched_, true)) stream_.start(this);
  }
  void ack_writes(bool enable) override { stream_.ack_writes(enable); }
  std::vector<char>& wr_buf() override { return stream_.wr_buf(); }
  std::vector<char>& rd_buf() override { return stream_.rd_buf(); }
  void flush() override { stream_.flush(this); }
  void graceful_shutdown() override {
    stream_.graceful_shutdown();
    detach(&stream_.backend(), false);
  }
  [[nodiscard]] std::string addr() const override { return name_; }
  [[nodiscard]] std::uint16_t port() const override { return any_port; }
  void add_to_loop() override { stream_.activate(this); }
  void remove_from_loop() override { stream_.passivate(); }

 private:
  std::string name_;
  bool launched_ = false;
  caf::io::network::stream_impl<PeerPolicy> stream_;
};

default_multiplexer& multiplexer_of(caf::actor_system& system) {
  return dynamic_cast<default_multiplexer&>(system.middleman().backend());
}

caf::io::scribe_ptr make_scribe(default_multiplexer& multiplexer, PeerSocket peer) {
  const int descriptor = peer.socket.release();  // the stream closes it
  return caf::make_counted<PeerScribe>(multiplexer, std::move(peer), descriptor);
}

/// Replaces CAF's listener: a PeerAcceptor delivers new connections.
class GateDoorman final : public caf::io::doorman {
 public:
  explicit GateDoorman(default_multiplexer& multiplexer)
      : doorman(caf::io::accept_handle::from_int(any_port)), multiplexer_(multiplexer) {}

  /// Multiplexer's thread only.
  void take(PeerSocket peer) {
    if (detached()) return;
    caf::io::scribe_ptr scribe = make_scribe(multiplexer_, std::move(peer));
    const caf::io::connection_handle handle = scribe->hdl();
    parent()->add_scribe(std::move(scribe));
    doorman::new_connection(&multiplexer_, handle);
  }

  bool new_connection() override { return false; }
  void launch() override {}
  void graceful_shutdown() override { detach(&multiplexer_, false); }
  [[nodiscard]] std::string addr() const override { return "gate"; }
  [[nodiscard]] std::uint16_t port() const override { return any_port; }
  void add_to_loop() override {}
  void remove_from_loop() override {}

 private:
  default_multiplexer& multiplexer_;
};

caf::actor broker_of(caf::actor_system& system) {
  return system.middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP"));
}

/// Message from the connector to itself.
struct TryAgain {
  ConnectPeer peer;
  caf::response_promise promise;
  Clock::time_point deadline;
};

}  // namespace

}  // namespace maestro

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::TryAgain)

namespace maestro {

namespace {

class Connector final : public caf::event_based_actor {
 public:
  Connector(caf::actor_config& config, GateKeys keys, caf::actor broker, milliseconds patience)
      : caf::event_based_actor(config), keys_(std::move(keys)), broker_(std::move(broker)), patience_(patience) {}

  caf::behavior make_behavior() override {
    return {
        [this](const ConnectPeer& peer) -> caf::result<PeerConnected> {
          caf::response_promise promise = make_response_promise();
          attempt({peer, promise, Clock::now() + patience_});
          return caf::delegated<PeerConnected>();
        },
        [this](const TryAgain& again) { attempt(again); },
    };
  }
  const char* name() const override { return "maestro.connector"; }
  void on_exit() override { broker_ = nullptr; }

 private:
  void attempt(TryAgain wanted) {
    try {
      PeerSocket made = connect_to_gate(wanted.peer.host, wanted.peer.port, keys_, std::min(attempt_limit, patience_));
      request(broker_, attempt_limit, caf::connect_atom::value, make_scribe(multiplexer_of(system()), std::move(made)),
              any_port)
          .then(
              [wanted](const caf::node_id&, const caf::strong_actor_ptr& found, const std::set<std::string>&) mutable {
                wanted.promise.deliver(PeerConnected{caf::actor_cast<caf::actor>(found), {}});
              },
              [this, wanted](const caf::error& problem) { try_later(wanted, system().render(problem)); });
    } catch (const JobError& problem) {
      const bool dead = wanted.peer.host.starts_with("unix:") &&  // a local process listens before its name is sent
                        (problem.code() == ErrorCode::unavailable || problem.code() == ErrorCode::not_found);
      if (dead) return wanted.promise.deliver(PeerConnected{nullptr, problem.what()});
      try_later(wanted, problem.what());
    }
  }
  void try_later(TryAgain wanted, const std::string& problem) {
    if (Clock::now() + pause < wanted.deadline) return delayed_send(this, pause, std::move(wanted));
    wanted.promise.deliver(PeerConnected{nullptr, problem});
  }

  GateKeys keys_;
  caf::actor broker_;
  milliseconds patience_;
};

}  // namespace

std::function<void(PeerSocket)> make_reachable(caf::actor_system& system, const caf::actor& actor) {
  default_multiplexer& multiplexer = multiplexer_of(system);
  const auto doorman = caf::make_counted<GateDoorman>(multiplexer);
  caf::scoped_actor self(system);
  self->request(broker_of(system), caf::infinite, caf::publish_atom::value, caf::io::doorman_ptr(doorman), any_port,
                caf::actor_cast<caf::strong_actor_ptr>(actor), std::set<std::string>())
      .receive([] {},
               [&](const caf::error& problem) {
                 throw JobError("cannot make a process reachable: " + system.render(problem), ErrorCode::internal);
               });
  return [doorman, &multiplexer](PeerSocket peer) {
    multiplexer.post([doorman, peer = std::move(peer)]() mutable { doorman->take(std::move(peer)); });
  };
}

caf::actor spawn_connector(caf::actor_system& system, const GateKeys& keys, milliseconds patience) {
  return system.spawn<Connector, caf::detached>(keys, broker_of(system), patience);
}

}  // namespace maestro
