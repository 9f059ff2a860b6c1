// SPDX-License-Identifier: Apache-2.0
#include "actors/launch/rendezvous.hpp"

#include <gmock/gmock.h>

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "actors/rpc/socket_address.hpp"
#include "tests/job/job_error.hpp"
#include "tests/observe/temporary_folder.hpp"
#include "tests/support/one_line.hpp"

namespace maestro {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr auto rendezvous_patience = 30s;

class Rendezvous : public TemporaryFolder {
 protected:
  static constexpr std::int64_t processes = 3;

  static JoinRequest request(std::int64_t rank) {
    return {.rank = rank,
            .processes = processes,
            .pid = 4000 + rank,
            .host = "host" + std::to_string(rank),
            .local_rank = 0,
            .version = "1.0",
            .token = "secret",
            .job = "[student]\nlr = 0.001\n"};
  }
  void open(std::shared_ptr<const KeySet> keys = nullptr) {
    RendezvousOptions options;
    options.address = "127.0.0.1:0";
    options.keys = std::move(keys);
    options.own = request(0);
    options.hosts = {0, 1, 2};
    options.accepted = {.epoch = 4'000'000'000u,
                        .caf_host = "10.0.0.1",
                        .caf_port = 4711,
                        .root_host_name = "host0",
                        .secret = "later",
                        .shared_file = "/shared/out/.mark",
                        .resume = "checkpoints/step-00000003",
                        .shared_memory = false};
    options.silence = silence_;
    options.farewell_to_late_ones = 1s;
    options.note = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      notes_.push_back(line);
      noted_.notify_all();
    };
    door_ = std::make_unique<RendezvousServer>(std::move(options));
  }
  [[nodiscard]] JoinOptions joining(std::int64_t rank, std::shared_ptr<const KeySet> keys = nullptr) const {
    JoinOptions options;
    options.host = "127.0.0.1";
    options.port = parse_socket_address(door_->address()).port;
    options.keys = std::move(keys);
    options.request = request(rank);
    options.patience = rendezvous_patience;
    return options;
  }
  static std::string error_of_join(const JoinOptions& options) {
    return job_error_of([&] { static_cast<void>(join(options)); });
  }
  /// Joins in another thread. Returns the error.
  static std::future<std::string> joiner(JoinOptions options) {
    return std::async(std::launch::async, [options = std::move(options)] { return error_of_join(options); });
  }
  std::string wait_error(std::chrono::milliseconds patience = rendezvous_patience) {
    return job_error_of([&] { door_->wait_all(patience); });
  }
  std::string note() {
    std::unique_lock lock(mutex_);
    return noted_.wait_for(lock, rendezvous_patience, [this] { return !notes_.empty(); }) ? notes_.front() : "none";
  }
  /// Joins `rank` and blocks until rank 0 has registered it.
  std::future<std::string> joined(std::int64_t rank, std::function<bool()> cancelled = {}) {
    JoinOptions options = joining(rank);
    options.cancelled = std::move(cancelled);
    auto result = joiner(std::move(options));
    while (door_->present().size() < 2) std::this_thread::yield();
    return result;
  }
  std::shared_ptr<const KeySet> keys(const char* name, const KeySetOptions& options = {}) const {
    make_key_set(folder_ / name, options);
    const std::filesystem::path folder = folder_ / name;
    return std::make_shared<KeySet>(
        KeySet{folder, folder / "node.pem", folder / "node.key", folder / "ca.pem", contents_of(folder / "token")});
  }

  std::chrono::milliseconds silence_ = 4s;
  std::mutex mutex_;
  std::condition_variable noted_;
  std::vector<std::string> notes_;
  std::unique_ptr<RendezvousServer> door_;  // last: its threads call note()
};

TEST_F(Rendezvous, all_processes_meet_and_are_told_where_to_go_on) {  // RV-1
  open();
  auto first = std::async(std::launch::async, [this] { return join(joining(1)); });
  auto second = std::async(std::launch::async, [this] { return join(joining(2)); });
  door_->wait_all(rendezvous_patience);
  for (auto* told : {&first, &second}) {
    const JoinAccepted accepted = told->get();
    EXPECT_EQ(accepted.epoch, 4'000'000'000u);
    EXPECT_EQ(accepted.caf_host, "10.0.0.1");
    EXPECT_EQ(accepted.caf_port, 4711);
    EXPECT_EQ(accepted.root_host_name, "host0");
    EXPECT_EQ(accepted.secret, "later");
    EXPECT_EQ(accepted.shared_file, "/shared/out/.mark");
    EXPECT_EQ(accepted.resume, "checkpoints/step-00000003");
    EXPECT_FALSE(accepted.shared_memory);
  }
  EXPECT_EQ(door_->present().at(2).host, "host2");
  EXPECT_EQ(door_->missing_text(), "");
  door_->stop();
  EXPECT_TRUE(notes_.empty());
}

TEST_F(Rendezvous, the_twentieth_refusal_that_is_noted_is_the_last) {  // RV-3
  open();
  JoinOptions stranger = joining(1);
  stranger.request.token = "guessed";
  for (int time = 0; time < 22; ++time) EXPECT_NE(error_of_join(stranger), "");
  auto other = std::async(std::launch::async, [this] { return join(joining(2)); });
  (void)join(joining(1));
  (void)other.get();
  const std::lock_guard lock(mutex_);
  ASSERT_EQ(notes_.size(), 20u);
  const std::string end = "(further refusals are not printed)";
  EXPECT_TRUE(notes_.back().ends_with(end)) << notes_.back();
  EXPECT_FALSE(notes_[18].ends_with(end));
}

TEST_F(Rendezvous, rank_0_may_come_last) {
  open();
  const std::string address = door_->address();
  const JoinOptions options = joining(1);
  door_.reset();
  auto early = joiner(options);
  auto other = joiner([&] {
    JoinOptions second = options;
    second.request = request(2);
    return second;
  }());
  RendezvousOptions again;
  again.address = address;
  again.own = request(0);
  again.hosts = {0, 1, 2};
  RendezvousServer late(std::move(again));
  late.wait_all(rendezvous_patience);
  EXPECT_EQ(early.get(), "(no error)");
  EXPECT_EQ(other.get(), "(no error)");
}

TEST_F(Rendezvous, a_local_socket_that_is_not_there_yet_is_waited_for) {
  const std::string address = "unix:" + (folder_ / "meet").string();
  const auto local = [&](std::int64_t rank) {
    JoinOptions options;
    options.host = address;
    options.request = request(rank);
    options.patience = rendezvous_patience;
    return options;
  };
  std::atomic<int> tries = 0;
  JoinOptions early = local(1);
  early.cancelled = [&tries] { return ++tries < 0; };
  auto first = joiner(early);
  while (tries < 2) std::this_thread::yield();
  RendezvousOptions options;
  options.address = address;
  options.own = request(0);
  options.hosts = {0, 0, 0};
  RendezvousServer server(std::move(options));
  auto second = joiner(local(2));
  server.wait_all(rendezvous_patience);
  EXPECT_EQ(first.get() + second.get(), "(no error)(no error)");
}

TEST_F(Rendezvous, when_patience_is_over_all_who_came_are_told_who_is_missing) {  // RV-1, RV-4
  open();
  auto came = joined(1);
  const std::string line = wait_error(1ms);
  EXPECT_EQ(line, "process 2 (host 2) did not join rank 0 on host0 within 1 s");
  EXPECT_EQ(came.get(), line);
}

TEST_F(Rendezvous, jobs_that_differ_are_told_to_all_who_came_and_to_who_comes_later) {  // RV-1
  open();
  auto came = joined(1);
  JoinOptions other = joining(2);
  other.request.job = "[student]\nlr = 0.0003\n";
  const std::string line = "jobs differ between hosts: student.lr = 0.001 on host0 (rank 0), 0.0003 on host2 (rank 2)";
  EXPECT_EQ(error_of_join(other), line);
  EXPECT_EQ(wait_error(), line);
  EXPECT_EQ(came.get(), line);
  EXPECT_EQ(error_of_join(joining(1)), line);
}

TEST_F(Rendezvous, versions_that_differ_are_told_to_all) {
  open();
  auto came = joined(1);
  JoinOptions other = joining(2);
  other.request.version = "2.0\nroot";
  EXPECT_THAT(error_of_join(other), AllOf(IsOneLine(), HasSubstr("2.0\\nroot on host2")));
  EXPECT_THAT(wait_error(), StartsWith("versions differ between hosts: maestro 1.0 on host0 (rank 0)"));
  EXPECT_THAT(came.get(), StartsWith("versions differ"));
}

TEST_F(Rendezvous, a_stranger_without_the_token_is_refused_and_noted_and_ends_nothing) {  // RV-3
  open();
  auto first = joiner(joining(1));
  JoinOptions stranger = joining(2);
  stranger.request.token = "guess";
  EXPECT_THAT(error_of_join(stranger), AllOf(IsOneLine(), HasSubstr("refused this process: its job token differs")));
  EXPECT_THAT(note(), AllOf(StartsWith("refused rank 2 (pid 4002 on host2) from 127.0.0.1:"), HasSubstr("token")));
  auto second = joiner(joining(2));
  door_->wait_all(rendezvous_patience);
  EXPECT_EQ(first.get() + second.get(), "(no error)(no error)");
}

TEST_F(Rendezvous, what_speaks_another_protocol_ends_nothing) {  // RV-3
  open();
  const SocketAddress address = parse_socket_address(door_->address());
  const FileDescriptor stranger = connect_to(address, "rendezvous", 5s);
  ASSERT_GT(::write(stranger.get(), "GET / HTTP/1.1\r\n\r\n", 18), 0);
  EXPECT_THAT(note(), StartsWith("refused 127.0.0.1:"));
  auto first = joiner(joining(1));
  auto second = joiner(joining(2));
  door_->wait_all(rendezvous_patience);
  EXPECT_EQ(first.get() + second.get(), "(no error)(no error)");
}

TEST_F(Rendezvous, a_process_that_comes_and_goes_ends_the_start) {  // RV-2
  open();
  std::atomic<bool> leave = false;
  auto leaving = joined(1, [&] { return leave.load(); });
  leave = true;
  const std::string line = "rank 1 (pid 4001 on host1) ended before the job began";
  EXPECT_EQ(wait_error(), line);
  EXPECT_EQ(error_of_join(joining(2)), line);
  EXPECT_EQ(leaving.get(), "stopped while waiting for the other processes");
}

TEST_F(Rendezvous, a_reason_that_one_process_alone_knows_is_told_to_all) {  // RV-2
  open();
  auto came = joined(1);
  join_to_withdraw(joining(2), "job.toml: train.steps must be positive");
  const std::string line = "job.toml: train.steps must be positive (rank 2 on host2)";
  EXPECT_EQ(wait_error(), line);
  EXPECT_EQ(came.get(), line);
}

TEST_F(Rendezvous, rank_0_tells_all_that_it_gives_up) {
  open();
  auto came = joined(1);
  door_->fail("interrupted");
  door_->fail("later");
  EXPECT_EQ(came.get(), "interrupted");
  EXPECT_EQ(wait_error(), "interrupted");
}

TEST_F(Rendezvous, rank_0_that_ends_releases_all) {  // RV-4
  open();
  auto came = joined(1);
  door_.reset();
  EXPECT_EQ(came.get(), "rank 0 on host0 ended before the job began");
}

TEST_F(Rendezvous, a_process_that_falls_silent_ends_the_start) {  // RV-5
  silence_ = 600ms;
  open();
  std::promise<void> resumed;
  auto stopped = joined(1, [until = resumed.get_future().share(), asked = std::make_shared<int>(0)] {
    if (++*asked == 1) return false;  // polled once before it joins
    until.wait();                     // blocks like a process that a signal has stopped
    return true;
  });
  EXPECT_EQ(wait_error(), "rank 1 (pid 4001 on host1) was silent for too long before the job began");
  resumed.set_value();
  EXPECT_EQ(stopped.get(), "stopped while waiting for the other processes");
}

TEST_F(Rendezvous, idle_strangers_keep_no_process_out) {  // RV-3
  open();
  const SocketAddress address = parse_socket_address(door_->address());
  std::vector<FileDescriptor> idle;
  for (int at = 0; at < 300; ++at) idle.push_back(connect_to(address, "rendezvous", 5s));
  auto first = joiner(joining(1));
  auto second = joiner(joining(2));
  door_->wait_all(rendezvous_patience);
  EXPECT_EQ(first.get() + second.get(), "(no error)(no error)");
}

TEST_F(Rendezvous, a_second_process_of_a_rank_ends_the_start) {
  open();
  auto came = joined(1);
  EXPECT_THAT(error_of_join(joining(1)), StartsWith("two processes have the same rank: rank 1 (pid 4001 on host1)"));
  EXPECT_THAT(came.get(), StartsWith("two processes have the same rank"));
}

TEST_F(Rendezvous, a_name_that_does_not_resolve_is_told_at_once) {
  open();
  JoinOptions lost = joining(1);
  lost.host = "no-such-host.invalid";
  lost.patience = 10min;
  EXPECT_THAT(error_of_join(lost), AllOf(IsOneLine(), HasSubstr("no-such-host.invalid"), HasSubstr("resolve")));
}

TEST_F(Rendezvous, a_host_where_nobody_listens_is_told_with_how_long_it_was_tried) {  // RV-4
  open();
  JoinOptions early = joining(1);
  door_.reset();
  early.patience = 50ms;
  EXPECT_THAT(error_of_join(early), AllOf(IsOneLine(), HasSubstr("127.0.0.1:" + std::to_string(early.port)),
                                          HasSubstr("no process listens there (tried for 1 s)")));
}

TEST_F(Rendezvous, waiting_can_be_cancelled) {
  open();
  JoinOptions options = joining(1);
  door_.reset();
  options.patience = 10min;
  options.cancelled = [asked = std::make_shared<int>(0)] { return ++*asked == 3; };
  EXPECT_EQ(error_of_join(options), "stopped while waiting for the other processes");
}

TEST_F(Rendezvous, a_busy_port_is_named) {
  open();
  RendezvousOptions options;
  options.address = door_->address();
  EXPECT_THAT(job_error_of([&] { RendezvousServer second(std::move(options)); }),
              AllOf(IsOneLine(), HasSubstr(door_->address()), HasSubstr("busy")));
}

TEST_F(Rendezvous, with_keys_all_processes_meet_over_tls) {
  const auto set = keys("job");
  open(set);
  auto first = joiner(joining(1, set));
  auto second = joiner(joining(2, set));
  door_->wait_all(rendezvous_patience);
  EXPECT_EQ(first.get() + second.get(), "(no error)(no error)");
}

TEST_F(Rendezvous, a_certificate_of_another_job_is_refused_by_name_and_ends_nothing) {  // RV-3
  const auto set = keys("job");
  auto foreign = std::make_shared<KeySet>(*keys("foreign"));
  foreign->authority = set->authority;  // it trusts rank 0, but rank 0 does not trust it
  open(set);
  EXPECT_THAT(error_of_join(joining(1, foreign)), AllOf(IsOneLine(), HasSubstr("refused our certificate")));
  EXPECT_THAT(note(), AllOf(StartsWith("refused 127.0.0.1:"), HasSubstr("its certificate was refused")));
  auto first = joiner(joining(1, set));
  auto second = joiner(joining(2, set));
  door_->wait_all(rendezvous_patience);
  EXPECT_EQ(first.get() + second.get(), "(no error)(no error)");
}

TEST_F(Rendezvous, rank_0_with_a_certificate_of_another_job_is_refused_at_once) {
  open(keys("job"));
  EXPECT_THAT(error_of_join(joining(1, keys("mine"))), AllOf(IsOneLine(), HasSubstr("its certificate was refused")));
}

TEST_F(Rendezvous, an_expired_certificate_is_told_before_anything_is_sent) {
  open(keys("job"));
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  const auto expired = keys("expired", {.begins = now - 2h, .ends = now - 1h});
  EXPECT_THAT(error_of_join(joining(1, expired)), AllOf(IsOneLine(), HasSubstr("expired")));
}

TEST_F(Rendezvous, a_process_without_keys_is_refused_where_keys_are_wanted) {  // RV-3
  const auto set = keys("job");
  open(set);
  JoinOptions plain = joining(1);
  plain.patience = 50ms;
  EXPECT_THAT(error_of_join(plain), AllOf(IsOneLine(), HasSubstr("does it want TLS")));
  EXPECT_THAT(note(), StartsWith("refused 127.0.0.1:"));
  EXPECT_EQ(door_->present().size(), 1u);
}

}  // namespace
}  // namespace maestro
