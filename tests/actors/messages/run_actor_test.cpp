// SPDX-License-Identifier: Apache-2.0
#include "actors/messages/run_actor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "tests/actors/actor_bench.hpp"

namespace maestro {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Failing final : public RunActor {
 public:
  using RunActor::RunActor;
  caf::behavior make_behavior() override {
    return {
        [](Begin) { throw std::runtime_error("no such file"); },
        [](Finish) { throw std::bad_alloc(); },
        [](Shutdown) { throw 7; },
    };
  }

 private:
  [[nodiscard]] std::string where() const override { return "tester, step 3"; }
};

class RunActorTest : public ::testing::Test {
 protected:
  template <class Message>
  void provoke(Message message) {
    const caf::actor actor = bench_.spawn<Failing>(supervisor_);
    ::testing::internal::CaptureStdout();
    bench_.send(actor, std::move(message));
    bench_.deliver_all();
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");  // RN-2
  }

  std::vector<std::string> failures_;
  testing::ActorBench bench_;
  caf::actor supervisor_ = bench_.stand_in([this](const Failure& failure) { failures_.push_back(failure.message); });
};

TEST_F(RunActorTest, reports_what_a_handler_throws) {  // RN-1
  provoke(Begin{});
  provoke(Finish{});
  provoke(Shutdown{});
  EXPECT_THAT(failures_, ElementsAre("tester, step 3: no such file", "tester, step 3: out of memory",
                                     "tester, step 3: an exception of an unknown type"));
}

TEST_F(RunActorTest, reports_a_message_that_it_has_no_handler_for) {  // RN-1
  provoke(PeersConnected{ProcessId(1)});
  EXPECT_THAT(failures_,
              ElementsAre(AllOf(StartsWith("tester, step 3: unexpected message"), HasSubstr("PeersConnected"))));
}

TEST_F(RunActorTest, reports_an_error_that_nobody_awaits) {  // RN-1
  provoke(caf::make_error(caf::sec::request_timeout));
  EXPECT_THAT(failures_, ElementsAre(AllOf(StartsWith("tester, step 3: error message"), HasSubstr("timeout"))));
}

}  // namespace
}  // namespace maestro
