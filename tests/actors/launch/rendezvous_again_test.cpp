// SPDX-License-Identifier: Apache-2.0
// A process that joins a running job.
#include <gtest/gtest.h>

#include <future>

#include "actors/launch/rendezvous.hpp"
#include "actors/rpc/socket_address.hpp"
#include "runtime/core/result.hpp"

namespace maestro {
namespace {

constexpr std::chrono::seconds start_patience(30);

JoinRequest request(std::int64_t rank) {
  JoinRequest request;
  request.rank = rank;
  request.processes = 3;
  request.pid = 4000 + rank;
  request.host = "here";
  request.version = "1.0";
  request.job = "lr = 0.1\n";
  return request;
}

/// Rank 0 of a running job with three processes; process 1 is lost.
class RendezvousAgain : public ::testing::Test {
 protected:
  RendezvousAgain() {
    RendezvousOptions options;
    options.address = "127.0.0.1:0";
    options.own = request(0);
    options.hosts = {0, 0, 0};
    options.present = {request(2)};
    options.accepted.epoch = 7;
    options.farewell_to_late_ones = std::chrono::seconds(1);
    door_ = std::make_unique<RendezvousServer>(std::move(options));
  }
  std::future<JoinAccepted> joiner(const JoinRequest& process) const {
    JoinOptions options;
    options.host = "127.0.0.1";
    options.port = parse_socket_address(door_->address()).port;
    options.request = process;
    options.patience = start_patience;
    return std::async(std::launch::async, [options] { return join(options); });
  }
  std::unique_ptr<RendezvousServer> door_;
};

TEST_F(RendezvousAgain, awaits_nobody_but_the_lost_process) {
  auto replacement = joiner(request(1));
  door_->wait_all(start_patience);
  EXPECT_EQ(replacement.get().epoch, 7u);
}

TEST_F(RendezvousAgain, refuses_a_replacement_of_another_job) {
  JoinRequest changed = request(1);
  changed.job = "lr = 0.2\n";  // the job file was edited in between
  auto replacement = joiner(changed);
  EXPECT_THROW(door_->wait_all(start_patience), JobError);
  EXPECT_THROW((void)replacement.get(), JobError);
}

TEST_F(RendezvousAgain, refuses_a_process_that_runs) {
  auto twin = joiner(request(2));
  EXPECT_THROW(door_->wait_all(start_patience), JobError);
  EXPECT_THROW((void)twin.get(), JobError);
}

}  // namespace
}  // namespace maestro
