// SPDX-License-Identifier: Apache-2.0
// The control service of a run (control.thrift), in the coordinator's process: answers on threads of its own, with what
// the coordinator and the replicas say.
//
// CT-1: the run never waits for the service: requests to actors are ordinary messages, and stop() wakes every thread
//       that waits for one.
// CT-2: status is answered within `status_patience`, with what has come by then.
// CT-3: a call with a wrong token reaches no actor; on a local socket the folder and the socket's mode are the token.
#pragma once

#include <caf/actor.hpp>
#include <caf/fwd.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "actors/plan/job_plan.hpp"
#include "actors/rpc/key_set.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

struct ControlServiceOptions {
  std::string address;                 ///< "unix:/path" or "host:port"; empty: a local socket in runtime_folder()
  std::shared_ptr<const KeySet> keys;  ///< for addresses that other hosts reach
  const JobPlan* job = nullptr;
  caf::actor_system* system = nullptr;
  caf::actor coordinator;
  std::function<void()> stop_run;  ///< what one Ctrl-C does; any thread
  Console* console = nullptr;      ///< names the first peers that are refused; may be absent
  std::chrono::milliseconds status_patience{30};
};

class ControlService {
 public:
  /// Listens and serves. Throws JobError: as RpcServer, or an address that other hosts reach without keys.
  explicit ControlService(ControlServiceOptions options);
  ~ControlService();
  ControlService(const ControlService&) = delete;
  ControlService& operator=(const ControlService&) = delete;

  [[nodiscard]] std::string address() const;
  /// Before the actors end. Idempotent.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace maestro
