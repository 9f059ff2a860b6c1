// SPDX-License-Identifier: Apache-2.0
#include "actors/control/run_questions.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "runtime/core/result.hpp"

namespace maestro {
namespace {

using namespace std::chrono_literals;

/// A coordinator and two replicas, each a stand-in actor that CAF schedules.
class RunQuestionsTest : public ::testing::Test {
 protected:
  RunQuestionsTest() : system_(configured(config_)) {}
  ~RunQuestionsTest() override {
    for (const caf::actor& actor : actors_) caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  }
  static caf::actor_system_config& configured(caf::actor_system_config& config) {
    config.add_message_types<caf::id_block::maestro>();
    config.set("logger.verbosity", caf::atom("quiet"));
    return config;
  }
  template <class... Handlers>
  caf::actor actor(Handlers... handlers) {
    // CAF 0.17 dereferences a null pointer if a function lacks arguments, so this one takes an int.
    actors_.push_back(system_.spawn([=](caf::event_based_actor*, int) -> caf::behavior { return {handlers...}; }, 0));
    return actors_.back();
  }
  caf::actor replica(std::uint32_t index) {
    return actor([=](StatusRequest) {
      WaitingFor answer;
      answer.replica = ReplicaIndex(index);
      answer.kind = WaitKind::work;
      return answer;
    });
  }
  caf::actor silent() {
    return actor([](StatusRequest) -> caf::result<WaitingFor> { return caf::skip; });
  }
  std::shared_ptr<const Directory> directory_of(const std::vector<caf::actor>& replicas) {
    auto directory = std::make_shared<Directory>();
    ProcessInfo& process = directory->processes.emplace_back();
    for (const caf::actor& one : replicas) process.replicas.emplace_back().actor = one;
    return directory;
  }
  /// Returns a view with so many replicas, or the last of views with growing patience: on a busy machine, answers take
  /// longer.
  static RunQuestions::View view_of(RunQuestions& questions, std::size_t replicas) {
    std::chrono::milliseconds patience = 100ms;
    auto view = questions.view(patience);
    while (view.replicas.size() != replicas && patience < 10s) view = questions.view(patience *= 2);
    return view;
  }
  static caf::result<CheckpointAnswer> never(caf::event_based_actor* self) { return self->make_response_promise(); }

  caf::actor_system_config config_;
  caf::actor_system system_;
  std::vector<caf::actor> actors_;
};

TEST_F(RunQuestionsTest, a_thread_that_lives_on_does_not_keep_the_system_from_its_end) {  // RQ-2
  std::promise<void> asked, ended;
  std::promise<void> destroyed;
  std::thread asking;  // a thread such as the watchdog's
  std::thread owner([&] {
    caf::actor_system_config config;
    {
      caf::actor_system system(configured(config));
      const caf::actor coordinator = system.spawn(
          [](caf::event_based_actor*, int) -> caf::behavior { return {[](RunStatusRequest) { return RunStatus(); }}; },
          0);
      asking = std::thread([&asked, &ended, &system, coordinator]() mutable {
        RunQuestions questions(system, std::move(coordinator));
        EXPECT_EQ(questions.status().last_step, 0U);
        questions.close();
        asked.set_value();
        ended.get_future().wait();
      });
      asked.get_future().wait();
      caf::anon_send_exit(coordinator, caf::exit_reason::user_shutdown);
    }
    destroyed.set_value();
  });
  EXPECT_EQ(destroyed.get_future().wait_for(30s), std::future_status::ready);
  ended.set_value();
  asking.join();
  owner.join();
}

RunStatus run_at(std::uint64_t step, std::shared_ptr<const Directory> directory) {
  RunStatus run;
  run.last_step = step;
  run.directory = std::move(directory);
  return run;
}

TEST_F(RunQuestionsTest, a_view_has_the_run_and_every_replica) {
  const auto directory = directory_of({replica(0), replica(1)});
  RunQuestions questions(system_, actor([=](RunStatusRequest) { return run_at(7, directory); }));
  for (int time = 0; time < 2; ++time) {  // the second view queries the same replicas
    const auto view = questions.view(30s);
    EXPECT_EQ(view.run.last_step, 7u);
    EXPECT_EQ(view.replicas.size(), 2u);
  }
  questions.close();
}

TEST_F(RunQuestionsTest, a_view_queries_the_replicas_that_are_there_now) {
  const auto before = directory_of({replica(0), silent()});  // a replica whose placement moves
  const auto after = directory_of({replica(0), replica(1)});
  std::atomic<bool> moved = false;
  RunQuestions questions(system_, actor([=, &moved](RunStatusRequest) { return run_at(7, moved ? after : before); }));
  EXPECT_EQ(view_of(questions, 1).replicas.size(), 1u);
  moved = true;
  EXPECT_EQ(questions.view(30s).replicas.size(), 2u);
  questions.close();
}

TEST_F(RunQuestionsTest, a_view_does_not_wait_for_a_replica_that_is_silent) {  // RQ-1
  const auto directory = directory_of({replica(0), silent()});
  RunQuestions questions(system_, actor([=](RunStatusRequest) { return run_at(7, directory); }));
  const auto view = view_of(questions, 1);
  EXPECT_EQ(view.run.last_step, 7u);
  ASSERT_EQ(view.replicas.size(), 1u);
  EXPECT_EQ(view.replicas[0].replica, ReplicaIndex(0));
  questions.close();
}

TEST_F(RunQuestionsTest, a_view_of_a_late_coordinator_is_what_it_said_last) {  // RQ-1
  const auto directory = directory_of({replica(0)});
  RunQuestions questions(system_, actor([=, asked = 0](RunStatusRequest) mutable -> caf::result<RunStatus> {
                           if (asked++ == 0) return run_at(7, directory);
                           return caf::skip;
                         }));
  EXPECT_EQ(questions.view(30s).run.last_step, 7u);
  const auto view = view_of(questions, 1);
  EXPECT_EQ(view.run.last_step, 7u);
  EXPECT_EQ(view.replicas.size(), 1u);
  questions.close();
}

TEST_F(RunQuestionsTest, a_view_after_a_pause_is_not_from_before_it) {
  RunQuestions questions(system_, actor(
                                      [asked = 0](RunStatusRequest) mutable -> caf::result<RunStatus> {
                                        if (asked++ == 1) return caf::skip;  // no answer to the second request
                                        return run_at(asked == 1 ? 7 : 8, nullptr);
                                      },
                                      [](const PauseRequest&) {
                                        return PauseAnswer{RunState::paused, StepId(8)};
                                      }));
  EXPECT_EQ(questions.view(30s).run.last_step, 7u);
  EXPECT_EQ(questions.pause().step, StepId(8));
  EXPECT_EQ(questions.view(1ms).run.last_step, 8u);
  questions.close();
}

TEST_F(RunQuestionsTest, close_wakes_who_waits_and_refuses_who_comes) {  // RQ-1
  std::promise<void> asked;
  RunQuestions questions(system_, actor([&](CheckpointRequest) -> caf::result<CheckpointAnswer> {
                           asked.set_value();
                           return caf::skip;
                         }));
  auto waiting = std::async(std::launch::async, [&] { (void)questions.checkpoint(); });
  asked.get_future().wait();
  questions.close();
  EXPECT_THROW(waiting.get(), JobError);
  EXPECT_THROW((void)questions.status(), JobError);
}

}  // namespace
}  // namespace maestro
