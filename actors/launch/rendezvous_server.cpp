// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "actors/launch/Rendezvous.h"
#include "actors/launch/joining.hpp"
#include "actors/launch/rendezvous.hpp"
#include "actors/rpc/rpc_server.hpp"
#include "actors/rpc/rpc_socket.hpp"
#include "actors/rpc/socket_address.hpp"
#include "runtime/core/result.hpp"

namespace maestro {
namespace {

using namespace std::chrono_literals;
using rendezvous::Answer;
using rendezvous::Joining;

constexpr auto answer_after = 500ms;
/// Time for connected processes to receive the reason why the job does not begin.
constexpr auto farewell = 1000ms;
constexpr std::size_t strangers = 64;
constexpr auto stranger_patience = 5000ms;
constexpr auto look_after = 250ms;
constexpr int most_refusals_noted = 20;
constexpr std::int32_t largest_message = 4 << 20;

[[noreturn]] void refuse(const std::string& reason, bool for_all) {
  rendezvous::Refused refused;
  refused.reason = reason;
  refused.for_all = for_all;
  throw refused;
}

}  // namespace

struct RendezvousServer::State {
  class Member;

  explicit State(RendezvousOptions given)
      : options(std::move(given)), processes(options.hosts.size()), join_check(options.own, std::move(options.hosts)) {}

  void note(const std::string& line) const {
    if (options.note) options.note(line);
  }
  void note_refusal(const std::string& line) {
    const int noted = ++refusals;
    if (noted > most_refusals_noted) return;
    note(line + (noted == most_refusals_noted ? " (further refusals are not printed)" : ""));
  }
  /// Ends the start with the first reason (RV-2). Call under the lock.
  bool fail(const std::string& reason, ErrorCode code) {
    if (decided()) return false;
    reason_not_to_begin = peer_text(reason);
    code_not_to_begin = code;
    changed.notify_all();
    return true;
  }
  [[nodiscard]] bool decided() const { return reason_not_to_begin || join_check.complete(); }
  [[nodiscard]] Answer answer(std::int64_t rank);
  [[nodiscard]] bool all_told() const {
    const bool everybody = informed.size() + 1 == processes;
    return members == 0 && (!reason_not_to_begin || everybody);
  }

  RendezvousOptions options;
  std::size_t processes;
  std::chrono::milliseconds patience_at_end = farewell;
  mutable std::mutex mutex;
  std::condition_variable changed;
  JoinCheck join_check;
  std::optional<std::string> reason_not_to_begin;
  ErrorCode code_not_to_begin = ErrorCode::invalid_argument;
  std::atomic<int> refusals = 0;
  std::set<std::int64_t> informed;  ///< ranks that received the outcome
  std::int64_t members = 0;         ///< connections of processes that have joined
};

/// Returns the outcome, or an empty answer if it is undecided. Call under the lock.
Answer RendezvousServer::State::answer(std::int64_t rank) {
  Answer answer;
  if (!decided()) return answer;
  informed.insert(rank);
  if (reason_not_to_begin) refuse(*reason_not_to_begin, true);
  rendezvous::JoinAccepted accepted;
  accepted.epoch = options.accepted.epoch;
  accepted.caf_host = options.accepted.caf_host;
  accepted.caf_port = options.accepted.caf_port;
  accepted.root_host_name = options.accepted.root_host_name;
  accepted.secret = options.accepted.secret;
  accepted.shared_file = options.accepted.shared_file;
  accepted.__set_resume(options.accepted.resume);
  accepted.__set_shared_memory(options.accepted.shared_memory);
  answer.__set_accepted(accepted);
  return answer;
}

/// A connection to a process. Its end means that the process has ended, unless the process has received the outcome.
class RendezvousServer::State::Member final : public rendezvous::RendezvousIf {
 public:
  Member(State& state, Visitor& visitor) : state_(state), visitor_(visitor) {}
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;
  ~Member() override {
    if (!joined_) return;
    const std::lock_guard lock(state_.mutex);
    --state_.members;
    const std::string how = visitor_.stream()->fell_silent() ? " was silent for too long" : " ended";
    state_.fail(process_name(*joined_) + how + " before the job began", ErrorCode::peer_lost);
    state_.changed.notify_all();
  }

  void join(Answer& answer, const Joining& joining) override {
    const JoinRequest request = request_of(joining);
    const std::optional<Refusal> refusal = admit(request);
    if (refusal && !refusal->for_all) {  // RV-3
      state_.note_refusal("refused " + process_name(request) + " from " + visitor_.name() + ": " + refusal->reason);
      refuse(refusal->reason, false);
    }
    const std::lock_guard lock(state_.mutex);
    if (refusal) {
      state_.fail(refusal->reason, ErrorCode::invalid_argument);
      state_.patience_at_end = state_.options.farewell_to_late_ones;
    }
    if (refusal && !state_.reason_not_to_begin) refuse(refusal->reason, true);  // all others have begun
    if (state_.decided()) state_.changed.notify_all();
    answer = state_.answer(request.rank);
  }

  void wait_for_all(Answer& answer) override {
    if (!joined_) refuse("it has not joined", false);
    std::unique_lock lock(state_.mutex);
    state_.changed.wait_for(lock, answer_after, [this] { return state_.decided(); });
    answer = state_.answer(joined_->rank);
  }

  void withdraw(const Joining& joining, const std::string& reason) override {
    const JoinRequest request = request_of(joining);
    const std::lock_guard lock(state_.mutex);
    if (!state_.join_check.knows_token(request)) refuse("its job token differs", false);
    state_.fail(reason + " (rank " + std::to_string(request.rank) + " on " + request.host + ")",
                ErrorCode::invalid_argument);
    state_.informed.insert(request.rank);
  }

 private:
  std::optional<Refusal> admit(const JoinRequest& request) {
    if (joined_) return Refusal{"it has already joined", false};
    const std::lock_guard lock(state_.mutex);
    std::optional<Refusal> refusal = state_.join_check.admit(request);
    if (refusal) return refusal;
    joined_ = request;
    visitor_.admit();
    visitor_.stream()->set_patience(state_.options.silence);  // RV-5
    ++state_.members;
    if (state_.join_check.complete()) state_.changed.notify_all();
    return std::nullopt;
  }

  State& state_;  // outlives the server's threads
  Visitor& visitor_;
  std::optional<JoinRequest> joined_;
};

RendezvousServer::RendezvousServer(RendezvousOptions options) : state_(std::make_unique<State>(std::move(options))) {
  State& state = *state_;
  for (const JoinRequest& process : state.options.present) {
    if (!state.join_check.admit(process)) state.informed.insert(process.rank);
  }
  AcceptorOptions acceptor;
  acceptor.address = state.options.address;
  acceptor.keys = state.options.keys;
  acceptor.most_clients = state.processes;
  acceptor.most_strangers = strangers;
  acceptor.stranger_patience = stranger_patience;
  acceptor.largest_message = largest_message;
  acceptor.refused = [&state](const std::string& peer, const std::string& reason) {
    state.note_refusal("refused " + peer_text(peer) + " at the rendezvous: " + peer_text(reason));
  };
  if (parse_socket_address(state.options.address).local()) {  // not a stranger (RV-6)
    acceptor.starved = [&state](const std::string& peer, const std::string& reason) {
      const std::lock_guard lock(state.mutex);
      state.fail("rank 0 lacks a thread or memory for " + peer_text(peer) + " at the rendezvous (" + peer_text(reason) +
                     "): raise `ulimit -u` or `ulimit -v`",
                 ErrorCode::unavailable);
    };
  }
  const auto serve = [&state](Visitor& visitor) {
    return std::make_shared<rendezvous::RendezvousProcessor>(std::make_shared<State::Member>(state, visitor));
  };
  server_ = std::make_unique<RpcServer>(std::move(acceptor), serve);
}

RendezvousServer::~RendezvousServer() {
  stop();
}

std::string RendezvousServer::address() const {
  return server_->address();
}

std::vector<JoinRequest> RendezvousServer::present() const {
  const std::lock_guard lock(state_->mutex);
  return state_->join_check.present();
}

std::string RendezvousServer::missing_text() const {
  const std::lock_guard lock(state_->mutex);
  return state_->join_check.missing_text();
}

void RendezvousServer::wait_all(std::chrono::milliseconds patience, const std::function<void()>& look) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  std::unique_lock lock(state_->mutex);
  while (!state_->changed.wait_for(lock, look_after, [this] { return state_->decided(); })) {
    if (std::chrono::steady_clock::now() >= deadline) {
      const auto seconds = std::chrono::ceil<std::chrono::seconds>(patience).count();
      state_->fail(state_->join_check.missing_text() + " did not join rank 0 on " + state_->options.own.host +
                       " within " + std::to_string(seconds) + " s",
                   ErrorCode::timeout);
      break;
    }
    if (!look) continue;
    lock.unlock();
    look();
    lock.lock();
  }
  if (state_->reason_not_to_begin) throw JobError(*state_->reason_not_to_begin, state_->code_not_to_begin);
}

bool RendezvousServer::fail(const std::string& reason, ErrorCode code) {
  const std::lock_guard lock(state_->mutex);
  return state_->fail(reason, code);
}

void RendezvousServer::refuse_all(const std::string& reason, std::chrono::milliseconds patience) {
  fail(reason, ErrorCode::invalid_argument);
  stop_after(patience);
}

void RendezvousServer::stop() {
  const auto patience = [this] {
    const std::lock_guard lock(state_->mutex);
    return state_->patience_at_end;
  };
  stop_after(patience());
}

void RendezvousServer::stop_after(std::chrono::milliseconds patience) {
  {
    std::unique_lock lock(state_->mutex);
    state_->fail("rank 0 on " + state_->options.own.host + " ended before the job began", ErrorCode::peer_lost);
    state_->changed.wait_for(lock, patience, [this] { return state_->all_told(); });
  }
  server_->stop();
}

}  // namespace maestro
