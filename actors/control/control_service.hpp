// SPDX-License-Identifier: Apache-2.0
// The control service of a run (control.thrift) in the coordinator's process. It answers on separate threads with the
// state that the coordinator and the replicas report.
//
// CT-1 (no interference): the run never waits for the service: requests to actors are ordinary messages, and stop()
//       wakes every thread that waits for an answer.
// CT-2 (bounded status): status is answered within `status_patience`, with the reports received by then.
// CT-3 (authentication): a call with a wrong token does not reach an actor. On a local socket, the modes of folder and
//       socket replace the token.
#pragma once

#include <caf/actor.hpp>
#include <caf/fwd.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "actors/job/resolved_job.hpp"
#include "actors/launch/join_terms.hpp"
#include "actors/rpc/key_set.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

struct ControlServiceOptions {
  std::string address;                 ///< "unix:/path" or "host:port"; empty: a local socket in runtime_folder()
  std::shared_ptr<const KeySet> keys;  ///< keys for an address that other hosts reach
  const ResolvedJob* job = nullptr;
  caf::actor_system* system = nullptr;
  caf::actor coordinator;
  std::function<void()> stop_run;  ///< stops the run like Ctrl-C; called on any thread
  /// Let a process join or leave; let_leave returns a line. Called on any thread; throw JobError.
  std::function<JoinTerms(const ElasticJoin&)> let_join;
  std::function<std::string(ProcessId)> let_leave;
  Console* console = nullptr;  ///< receives a line for each of the first refused peers; may be null
  std::chrono::milliseconds status_patience{30};
};

class ControlService {
 public:
  /// Listens and serves. Throws JobError like RpcServer, and for an address that other hosts reach without keys.
  explicit ControlService(ControlServiceOptions options);
  ~ControlService();
  ControlService(const ControlService&) = delete;
  ControlService& operator=(const ControlService&) = delete;

  [[nodiscard]] std::string address() const;
  /// Stops serving; call before the actors end. Idempotent.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace maestro
