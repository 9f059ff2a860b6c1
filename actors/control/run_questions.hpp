// SPDX-License-Identifier: Apache-2.0
// Queries the coordinator and the replicas of a run for threads that are not actors.
//
// RQ-1 (bounded calls): every call ends within its patience, or when close() is called; the run never waits for a call.
// RQ-2 (nothing kept): after a call its thread keeps nothing of the actor system, which the thread may outlive.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "actors/messages/message_types.hpp"
#include "actors/run/coordinator/control_messages.hpp"

namespace maestro {

/// Thread-safe. Calls throw JobError, a single line: no answer in time, or the run is ending.
class RunQuestions {
 public:
  using Clock = std::chrono::steady_clock;

  RunQuestions(caf::actor_system& system, caf::actor coordinator);

  struct View {
    RunStatus run;
    bool fresh = false;                ///< the coordinator answered in time
    std::vector<WaitingFor> replicas;  ///< replicas that answered in time
  };
  /// Returns the state within `patience`; if the coordinator is late, the view holds its last answer.
  [[nodiscard]] View view(std::chrono::milliseconds patience);
  [[nodiscard]] RunStatus status();
  [[nodiscard]] MetricsRows metrics(const MetricsRequest& request);
  /// Returns the checkpoint or a refusal.
  [[nodiscard]] CheckpointAnswer checkpoint();
  /// Returns when the run stands still, or with state `pausing` if that takes too long.
  [[nodiscard]] PauseAnswer pause();
  [[nodiscard]] PauseAnswer resume();

  /// Wakes all calls and refuses further calls; call before the actors end.
  void close();

 private:
  class Mailbox;
  template <class Answer, class Request>
  std::optional<Answer> query(Request request, std::chrono::milliseconds patience);
  template <class Answer, class Request>
  Answer query_or_throw(Request request, std::chrono::milliseconds patience);
  [[nodiscard]] std::optional<RunStatus> last() const;
  void remember(const RunStatus& run);
  /// Drops the last answer, which is from before a change that a caller knows of.
  void forget();

  caf::actor_system& system_;
  mutable std::mutex mutex_;  // guards the members below
  caf::actor coordinator_;
  bool closed_ = false;
  std::map<const Mailbox*, caf::actor> waiting_;  // close() wakes them
  std::optional<RunStatus> last_;
};

}  // namespace maestro
