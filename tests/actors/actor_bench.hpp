// SPDX-License-Identifier: Apache-2.0
// An actor system that delivers one message at a time, in an order chosen by the test. Nothing runs by itself.
#pragma once

#include <caf/scheduler/test_coordinator.hpp>
#include <functional>
#include <random>
#include <vector>

#include "actors/messages/message_types.hpp"

namespace maestro::testing {

class ActorBench {
 public:
  ActorBench() : system_(configured(config_)) {}
  /// Ends all actors: a running actor would keep the system alive.
  ~ActorBench() {
    for (const caf::actor& actor : actors_) caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
    actors_.clear();
    deliver_all();
  }
  ActorBench(const ActorBench&) = delete;
  ActorBench& operator=(const ActorBench&) = delete;

  [[nodiscard]] caf::actor_system& system() { return system_; }

  template <class Actor, class... Arguments>
  caf::actor spawn(Arguments&&... arguments) {
    return kept(system_.spawn<Actor>(std::forward<Arguments>(arguments)...));
  }
  /// Spawns an actor with only these handlers, as a stand-in for a partner.
  template <class... Handlers>
  caf::actor stand_in(Handlers... handlers) {
    // CAF 0.17 dereferences a null pointer if a function lacks arguments (UBSan), so this one takes an int.
    return kept(system_.spawn([=](caf::event_based_actor*, int) -> caf::behavior { return {handlers...}; }, 0));
  }

  template <class Message>
  void send(const caf::actor& to, Message message) {
    caf::anon_send(to, std::move(message));
  }
  [[nodiscard]] bool idle() { return scheduler().jobs.empty(); }
  void deliver_all() {
    while (!idle()) scheduler().run_once();
  }
  /// Advances the simulated clock, then delivers all messages.
  void advance(caf::timespan time) {
    scheduler().clock().advance_time(time);
    deliver_all();
  }
  /// Lets a randomly chosen actor handle a message.
  template <class Random>
  void deliver_one(Random& random) {
    auto& jobs = scheduler().jobs;
    std::swap(jobs.front(), jobs[random() % jobs.size()]);
    scheduler().run_once();
  }
  /// Returns the answer to a request. Delivers all other pending messages, too.
  template <class Answer, class Request>
  Answer ask(const caf::actor& actor, Request request) {
    caf::scoped_actor self(system_);
    self->send(actor, std::move(request));
    deliver_all();
    Answer answer;
    self->receive([&](const Answer& given) { answer = given; });
    return answer;
  }

 private:
  static caf::actor_system_config& configured(caf::actor_system_config& config) {
    config.add_message_types<caf::id_block::maestro>();
    config.set("scheduler.policy", caf::atom("testing"));
    config.set("logger.verbosity", caf::atom("quiet"));
    return config;
  }
  caf::actor kept(caf::actor actor) {
    actors_.push_back(actor);
    return actor;
  }
  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler());
  }

  caf::actor_system_config config_;
  caf::actor_system system_;
  std::vector<caf::actor> actors_;
};

}  // namespace maestro::testing
