// SPDX-License-Identifier: Apache-2.0
// The base class of every actor of a run except the supervisor.
//
// RN-1 (no silent end): an exception in a handler, an error message, or a message without a handler reaches the
//       supervisor as a Failure that begins with where(); the actor ends.
// RN-2 (quiet): actors print nothing to standard output.
#pragma once

#include <string>
#include <utility>

#include "actors/messages/message_types.hpp"

namespace maestro {

class RunActor : public caf::event_based_actor {
 public:
  RunActor(caf::actor_config& config, caf::actor supervisor)
      : caf::event_based_actor(config), supervisor_(std::move(supervisor)) {
    report_every_end(this, [this](const std::string& problem) { report(problem); });
  }
  /// Releases the supervisor's handle. Overriders call this: actors with handles of each other would never be freed.
  void on_exit() override { supervisor_ = nullptr; }
  caf::invoke_message_result consume(caf::mailbox_element& message) override {
    order_after_receipt(*this);
    return caf::event_based_actor::consume(message);
  }

 protected:
  /// Returns the actor's current work: "section 'student' replica 0, step 7".
  [[nodiscard]] virtual std::string where() const = 0;
  /// Sends `where(): problem` to the supervisor, whose first failure ends the run.
  void report(const std::string& problem, bool service_lost = false) {
    send_to(this, supervisor_, Failure{where() + ": " + problem, false, service_lost});
  }
  [[nodiscard]] const caf::actor& supervisor() const { return supervisor_; }

 private:
  caf::actor supervisor_;
};

}  // namespace maestro
