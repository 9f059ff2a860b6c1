// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <thread>

#include "actors/launch/Rendezvous.h"
#include "actors/launch/joining.hpp"
#include "actors/launch/rendezvous.hpp"
#include "actors/rpc/rpc_client.hpp"
#include "actors/rpc/socket_address.hpp"
#include "runtime/core/result.hpp"

namespace maestro {
namespace {

using namespace std::chrono_literals;
using rendezvous::Answer;
using rendezvous::RendezvousClient;
using Clock = std::chrono::steady_clock;

constexpr auto first_pause = 20ms;
constexpr auto longest_pause = 500ms;
constexpr std::chrono::milliseconds connect_patience = 5000ms;
constexpr std::chrono::milliseconds ended_patience = 5000ms;

std::string root_address(const JoinOptions& options) {
  return options.host.starts_with("unix:") ? options.host : options.host + ":" + std::to_string(options.port);
}

void stop_if_cancelled(const JoinOptions& options) {
  if (!options.cancelled || !options.cancelled()) return;
  throw JobError("stopped while waiting for the other processes", ErrorCode::cancelled);
}

/// Returns how long to retry after this error. Without a listener or local socket, rank 0 may not have started. If the
/// connection ends, the time is shorter: a relay may lack its server, or rank 0 may require TLS. A name that does not
/// resolve is final.
std::chrono::milliseconds patience_for(const JobError& error, const JoinOptions& options) {
  switch (error.code()) {
    case ErrorCode::unavailable:
    case ErrorCode::timeout:
      return options.patience;
    case ErrorCode::not_found:
      return parse_socket_address(root_address(options)).local() ? options.patience : 0ms;
    case ErrorCode::peer_lost:
      return std::min(ended_patience, options.patience);
    default:
      return 0ms;
  }
}

/// A connection to rank 0.
class RootConnection {
 public:
  explicit RootConnection(const JoinOptions& options)
      : options_(options), connection_(connection_options(options)), client_(connection_.protocol()) {}

  void join() {
    invoke([&] { client_.join(answer_, wire_form(options_.request)); });
  }

  /// Polls until all processes have joined.
  JoinAccepted wait_for_all() {
    while (!answer_.__isset.accepted) {
      stop_if_cancelled(options_);
      ask_root([&] { client_.wait_for_all(answer_); });
    }
    const rendezvous::JoinAccepted& accepted = answer_.accepted;
    return {.epoch = static_cast<std::uint32_t>(accepted.epoch),
            .caf_host = accepted.caf_host,
            .caf_port = static_cast<std::uint16_t>(accepted.caf_port),
            .root_host_name = accepted.root_host_name,
            .secret = accepted.secret,
            .shared_file = accepted.shared_file,
            .resume = accepted.resume,
            .shared_memory = accepted.shared_memory};
  }

  void withdraw(const std::string& reason) {
    invoke([&] { client_.withdraw(wire_form(options_.request), reason); });
  }

 private:
  static ConnectionOptions connection_options(const JoinOptions& options) {
    ConnectionOptions connection;
    connection.address = root_address(options);
    connection.service = "rendezvous of rank 0";
    connection.keys = options.keys;
    connection.connect_patience = std::min(connect_patience, options.patience);
    connection.answer_patience = options.silence;
    return connection;
  }

  template <class Call>
  void invoke(Call&& call) {
    try {
      connection_.invoke(call);
    } catch (const rendezvous::Refused& refused) {
      if (refused.for_all) throw JobError(refused.reason, ErrorCode::cancelled);
      throw JobError("rank 0 at " + root_address(options_) + " refused this process: " + refused.reason);
    }
  }

  /// Calls rank 0 after it has answered once: a lost connection means that it ended.
  template <class Call>
  void ask_root(Call&& call) {
    try {
      invoke(call);
    } catch (const JobError& error) {
      const bool silent = error.code() == ErrorCode::timeout;
      if (error.code() != ErrorCode::peer_lost && !silent) throw;
      throw JobError("rank 0 at " + root_address(options_) + (silent ? " was silent for too long" : " ended") +
                         " before the job began",
                     ErrorCode::peer_lost);
    }
  }

  const JoinOptions& options_;
  RpcClient connection_;
  RendezvousClient client_;
  Answer answer_;
};

/// Retries until rank 0 has answered the first call or the patience is over.
template <class FirstCall>
std::unique_ptr<RootConnection> find_root(const JoinOptions& options, FirstCall&& first_call) {
  const auto begin = Clock::now();
  for (Clock::duration pause = first_pause;; pause = std::min<Clock::duration>(2 * pause, longest_pause)) {
    stop_if_cancelled(options);
    try {
      auto root = std::make_unique<RootConnection>(options);
      first_call(*root);
      return root;
    } catch (const JobError& error) {
      const auto patience = patience_for(error, options);
      if (patience == 0ms) throw;
      if (Clock::now() + pause >= begin + patience) {
        const auto seconds = std::chrono::ceil<std::chrono::seconds>(patience).count();
        throw JobError(std::string(error.what()) + " (tried for " + std::to_string(seconds) + " s)", error.code());
      }
    }
    std::this_thread::sleep_for(pause);  // before the next try
  }
}

}  // namespace

JoinAccepted join(const JoinOptions& options) {
  return find_root(options, [](RootConnection& root) { root.join(); })->wait_for_all();
}

void join_to_withdraw(const JoinOptions& options, const std::string& reason) noexcept {
  try {
    find_root(options, [&](RootConnection& root) { root.withdraw(reason); });
  } catch (const std::exception&) {  // the caller reports the reason
  }
}

}  // namespace maestro
