// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>

#include "actors/plan/seats.hpp"
#include "actors/run/supervisor.hpp"
#include "tests/actors/actor_bench.hpp"

namespace maestro {
namespace {

const SectionId text(0), teacher(1), student(2);
constexpr Epoch begun(40);

SectionGraph distillation() {
  SectionGraph graph;
  const auto add = [&](const std::string& name, Role role, std::int64_t replicas,
                       const std::vector<std::string>& inputs) {
    GraphNode node;
    node.name = name;
    node.role = role;
    node.replicas = replicas;
    for (const std::string& input : inputs) node.ports.inputs.push_back({input, DType::f32, 1});
    node.ports.outputs.push_back({"out", DType::f32, 1});
    graph.add(std::move(node));
    for (const std::string& input : inputs) graph.connect(input, "out", name, input);
  };
  add("text", Role::source, 1, {});
  add("teacher", Role::frozen, 2, {"text"});
  add("student", Role::trained, 1, {"text", "teacher"});
  return graph;
}

Seat seat(SectionId section, std::uint32_t index, std::uint32_t process) {
  return {section, ReplicaIndex(index), ProcessId(process)};
}

/// Supervisors of four processes: 0 has the text, 1 and 2 a teacher each, 3 the student. The test plays all other
/// actors.
class MovesOfSeats : public ::testing::Test {
 protected:
  void start() {
    for (std::uint32_t rank = 0; rank < 4; ++rank) supervisors_.push_back(spawn(rank));
    for (const caf::actor& supervisor : supervisors_) bench_.send(supervisor, JoinRoot{supervisors_[0]});
    bench_.deliver_all();
    for (std::uint32_t rank = 0; rank < 4; ++rank) bench_.send(supervisors_[rank], local(rank));
    bench_.deliver_all();
  }
  caf::actor spawn(std::uint32_t rank) {
    SupervisorOptions options;
    options.graph = &graph_;
    options.process = ProcessId(rank);
    options.hosts = {0, 0, 0, 0};
    options.outcome = outcomes_.emplace_back(std::make_shared<OutcomePromise>());  // of a successor: after the others
    options.current_step = &current_step_;
    options.recovers = true;
    options.connect = [this](caf::event_based_actor*, const std::string&, std::uint16_t port, const auto& done,
                             const auto&) { done(supervisors_.at(port)); };
    options.seats.most = most_;
    options.seats.epoch = begun;
    options.seats.begun = [this](const std::string& line) { lines_.push_back(line); };
    options.seats.warn = options.seats.begun;
    options.seats.bury = [this](const ProcessInfo& lost) { buried_.push_back(lost.process.value()); };
    if (starts_) options.seats.start = [this](ProcessId process) { started_.push_back(process.value()); };
    options.seats.seated = [this](ProcessId process) { seated_.push_back(process.value()); };
    options.seats.take = [this, rank](const MoveSeats& order) { return take(rank, order); };
    ends_.push_back(options.outcome->future().share());
    return bench_.spawn<Supervisor>(options);
  }
  /// A replica that does as it is ordered, and notes it.
  caf::actor replica(SectionId section, std::uint32_t index, std::uint32_t process) {
    const ReplicaAddress address{section, ReplicaIndex(index), ProcessId(process), nullptr, {}, {}};
    const auto self = std::make_shared<caf::actor>();
    const std::string name = graph_.node(section).name + std::to_string(index) + "@" + std::to_string(process);
    const auto note = [this, name](const std::string& what) { noted_.push_back(name + " " + what); };
    const auto own = [address, self] {
      ReplicaAddress known = address;
      known.actor = *self;
      return known;
    };
    *self = bench_.stand_in([own](AddressRequest) { return own(); },
                            [own, note](const RenewInputs& renewal) {
                              note("renews for " + std::to_string(renewal.epoch.value()));
                              return InputsRenewed{own(), {RingArrivals{{}, ReplicaIndex(0), {}, 11, {}}}};
                            },
                            [note](Retire) { note("retires"); }, [note](const SeatsMoved&) { note("goes on"); },
                            [note](const Directory&) { note("begins"); });
    actors_.push_back(*self);
    return *self;
  }
  std::vector<OwnActor> take(std::uint32_t rank, const MoveSeats& order) {
    std::vector<Seat>& own = seats_of_[rank];
    for (const Seat& seat : order.moved) {
      std::erase_if(own, [&](const Seat& one) { return one.section == seat.section && one.replica == seat.replica; });
      if (seat.process == ProcessId(rank)) own.push_back(seat);
    }
    std::vector<OwnActor> taken;
    for (const Seat& seat : own) {
      if (seat.section != student) taken.push_back({replica(seat.section, seat.replica.value(), rank), "section"});
    }
    if (silent_) {
      taken.push_back({bench_.stand_in([](AddressRequest) -> caf::result<ReplicaAddress> {
                         return caf::delegated<ReplicaAddress>();
                       }),
                       "section"});
    }
    return taken;
  }
  LocalActors local(std::uint32_t rank) {
    LocalActors local;
    local.info.process = ProcessId(rank);
    local.info.identity.pid = 100 + rank;
    local.info.actors_port = static_cast<std::uint16_t>(rank);
    local.info.supervisor = supervisors_[rank];
    const SectionId section = rank == 0 ? text : rank == 3 ? student : teacher;
    const std::uint32_t index = rank == 2 ? 1 : 0;
    replicas_.push_back(replica(section, index, rank));
    seats_of_[rank].clear();
    if (!idle(rank)) {
      seats_of_[rank].push_back(seat(section, index, rank));
      local.info.replicas.push_back({section, ReplicaIndex(index), ProcessId(rank), replicas_.back(), {}, {}});
    }
    local.coordinator = bench_.stand_in([](const Directory&) {}, [](Begin) {},
                                        [this](const SeatsLost& loss) { noted_.push_back("lost: " + loss.cause); },
                                        [this](const BeginAgain& moved) { moved_ = moved; });
    return local;
  }
  /// Whether a process has no section.
  [[nodiscard]] virtual bool idle(std::uint32_t) const { return false; }
  void kill(std::uint32_t rank) {
    caf::anon_send_exit(supervisors_[rank], caf::exit_reason::kill);
    bench_.deliver_all();
  }
  /// A process that was lost starts again and introduces itself.
  void come_again(std::uint32_t rank) {
    supervisors_[rank] = spawn(rank);
    bench_.send(supervisors_[rank], JoinRoot{supervisors_[0]});
    bench_.deliver_all();
    bench_.send(supervisors_[rank], local(rank));
    bench_.deliver_all();
  }
  [[nodiscard]] std::vector<Seat> seats() const {
    std::vector<Seat> seats = seats_of(moved_->directory);
    std::ranges::sort(seats);
    return seats;
  }
  [[nodiscard]] bool ended(std::uint32_t rank) {
    return ends_[rank].wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  [[nodiscard]] int times(const std::string& note) const { return static_cast<int>(std::ranges::count(noted_, note)); }

  SectionGraph graph_ = distillation();
  std::size_t most_ = 10;
  bool starts_ = false;  // lost processes again
  std::vector<std::uint32_t> started_, seated_;
  bool silent_ = false;  // a new replica never gives its address
  std::atomic<std::uint64_t> current_step_ = 4;
  std::vector<std::shared_ptr<OutcomePromise>> outcomes_;
  std::vector<std::shared_future<RunOutcome>> ends_;
  std::vector<std::string> lines_, noted_;
  std::vector<std::uint32_t> buried_;
  std::map<std::uint32_t, std::vector<Seat>> seats_of_;  // as each process has them
  std::optional<BeginAgain> moved_;
  std::vector<caf::actor> actors_, replicas_;
  testing::ActorBench bench_;
  std::vector<caf::actor> supervisors_;
};

TEST_F(MovesOfSeats, let_the_run_go_on_without_a_process_of_seats) {  // SV-8
  start();
  kill(2);
  for (const std::uint32_t rank : {0u, 1u, 3u}) EXPECT_FALSE(ended(rank)) << rank;
  EXPECT_EQ(buried_, (std::vector<std::uint32_t>{2, 2, 2}));
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0],
            "lost process 2 (pid 102, section 'teacher' replica 1) in step 4: it died, or was silent for too long; "
            "process 1 takes section 'teacher' replica 1");
  EXPECT_EQ(times("text0@0 retires"), 1);
  EXPECT_EQ(times("teacher0@1 retires"), 1);
  EXPECT_EQ(times("student0@3 renews for 41"), 1);
  EXPECT_EQ(times("student0@3 goes on"), 1);
  EXPECT_EQ(times("teacher1@1 begins"), 1);
  ASSERT_TRUE(moved_);
  EXPECT_EQ(moved_->arrivals.size(), 1u);
  EXPECT_EQ(seats(),
            (std::vector<Seat>{seat(text, 0, 0), seat(teacher, 0, 1), seat(teacher, 1, 1), seat(student, 0, 3)}));
}

TEST_F(MovesOfSeats, end_with_the_last_process_of_the_section) {  // SV-8
  start();
  kill(2);
  kill(1);
  bench_.send(supervisors_[0], LossSettled{});
  bench_.deliver_all();
  ASSERT_TRUE(ended(0));
  EXPECT_TRUE(ends_[0].get().recoverable);
  EXPECT_EQ(lines_.size(), 1u);
}

TEST_F(MovesOfSeats, do_not_happen_for_a_process_with_a_trained_section) {  // SV-8
  start();
  kill(3);
  bench_.send(supervisors_[0], LossSettled{});
  bench_.deliver_all();
  ASSERT_TRUE(ended(0));
  EXPECT_TRUE(ends_[0].get().recoverable);
  EXPECT_TRUE(lines_.empty());
}

TEST_F(MovesOfSeats, happen_at_most_as_often_as_the_job_allows) {
  most_ = 0;
  start();
  kill(2);
  bench_.send(supervisors_[0], LossSettled{});
  bench_.deliver_all();
  EXPECT_TRUE(ended(0));
  EXPECT_TRUE(lines_.empty());
}

TEST_F(MovesOfSeats, end_the_start_of_the_run_when_a_process_does_not_answer) {  // SV-8
  silent_ = true;
  start();
  kill(2);
  EXPECT_FALSE(ended(0));
  bench_.advance(std::chrono::seconds(5));
  ASSERT_TRUE(ended(0));
  EXPECT_TRUE(ends_[0].get().recoverable);
  EXPECT_NE(ends_[0].get().error.find("seats have not moved in time"), std::string::npos) << ends_[0].get().error;
}

TEST_F(MovesOfSeats, end_the_start_of_the_run_at_a_loss_before_the_seats_have_moved) {  // SV-8
  silent_ = true;
  start();
  kill(2);
  kill(1);
  bench_.send(supervisors_[0], LossSettled{});
  bench_.deliver_all();
  ASSERT_TRUE(ended(0));
  EXPECT_TRUE(ends_[0].get().recoverable);
}

TEST_F(MovesOfSeats, explain_failed_transfers_of_the_replicas_that_were_there_before) {  // SV-7
  start();
  caf::anon_send_exit(supervisors_[2], caf::exit_reason::kill);
  caf::scoped_actor other(bench_.system());
  caf::send_as(replicas_[1], supervisors_[1], TransferBroken{"section 'teacher' replica 0: cannot write"});
  bench_.deliver_all();
  bench_.advance(std::chrono::seconds(4));
  EXPECT_FALSE(ended(1));
  caf::send_as(replicas_[3], supervisors_[3], TransferBroken{"section 'student' replica 0: cannot write"});
  bench_.deliver_all();
  bench_.advance(std::chrono::seconds(4));
  EXPECT_TRUE(ended(3));
}

TEST_F(MovesOfSeats, explain_a_broken_transport_as_a_further_loss) {  // EP-5
  start();
  kill(2);
  bench_.send(supervisors_[3], Failure{"transport: a lock is held", true});
  bench_.deliver_all();
  ASSERT_TRUE(ended(0));
  EXPECT_TRUE(ends_[0].get().recoverable);
}

class Successors : public MovesOfSeats {
 protected:
  Successors() { starts_ = true; }
};

TEST_F(Successors, take_the_seats_back_that_others_took) {  // SV-9
  start();
  kill(2);
  EXPECT_EQ(started_, std::vector<std::uint32_t>{2});
  moved_.reset();
  come_again(2);
  ASSERT_TRUE(moved_);
  EXPECT_EQ(moved_->reason, "process 2 is there again");
  EXPECT_EQ(seats(),
            (std::vector<Seat>{seat(text, 0, 0), seat(teacher, 0, 1), seat(teacher, 1, 2), seat(student, 0, 3)}));
  EXPECT_EQ(seated_, std::vector<std::uint32_t>{2});
  EXPECT_EQ(times("teacher1@1 retires"), 1);
  for (const std::uint32_t rank : {0u, 1u, 3u}) EXPECT_FALSE(ended(rank)) << rank;
}

TEST_F(Successors, may_be_lost_and_come_again) {  // SV-9
  start();
  for (int round = 0; round < 3; ++round) {
    kill(2);
    come_again(2);
  }
  EXPECT_EQ(seated_, (std::vector<std::uint32_t>{2, 2, 2}));
  EXPECT_EQ(lines_.size(), 3u);
  EXPECT_FALSE(ended(0));
}

TEST_F(Successors, that_fail_leave_the_seats_where_they_are) {  // SV-9
  start();
  kill(2);
  bench_.send(supervisors_[0], SuccessorFailed{ProcessId(2), "it ended with exit status 1"});
  bench_.deliver_all();
  EXPECT_FALSE(ended(0));
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_EQ(lines_[1], "process 2 did not start again: it ended with exit status 1; the others keep its seats");
}

TEST_F(Successors, come_one_after_the_other) {  // SV-9
  start();
  kill(2);
  bench_.send(supervisors_[0], ChildEnded{ProcessId(2), "signal 9", false});
  bench_.deliver_all();
  EXPECT_EQ(lines_.size(), 1u) << "the end of the lost process is no end of its successor";
  come_again(2);
  kill(1);
  EXPECT_EQ(started_, (std::vector<std::uint32_t>{2, 1}));
  come_again(1);
  EXPECT_EQ(seated_, (std::vector<std::uint32_t>{2, 1}));
  EXPECT_EQ(seats(),
            (std::vector<Seat>{seat(text, 0, 0), seat(teacher, 0, 1), seat(teacher, 1, 2), seat(student, 0, 3)}));
}

/// Process 2 has no section, so that process 1 alone has the teacher.
class OnlyTeacher : public Successors {
 protected:
  bool idle(std::uint32_t rank) const override { return rank == 2; }
};

TEST_F(OnlyTeacher, is_waited_for_while_transfers_to_it_fail) {  // SV-7, SV-9
  start();
  kill(1);
  EXPECT_FALSE(ended(0));
  EXPECT_FALSE(moved_);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0],
            "lost process 1 (pid 101, section 'teacher' replica 0) in step 4: it died, or was silent for too long; "
            "starting it again");
  caf::send_as(replicas_[0], supervisors_[0], TransferBroken{"section 'text' replica 0: cannot write"});
  bench_.deliver_all();
  bench_.advance(std::chrono::seconds(20));
  EXPECT_FALSE(ended(0));
  come_again(1);
  ASSERT_TRUE(moved_);
  bench_.advance(std::chrono::seconds(20));
  EXPECT_FALSE(ended(0)) << "its replicas began anew";
}

TEST_F(OnlyTeacher, that_does_not_come_takes_the_run_back) {  // SV-9
  start();
  kill(1);
  bench_.send(supervisors_[0], SuccessorFailed{ProcessId(1), "no memory"});
  bench_.deliver_all();
  ASSERT_TRUE(ended(0));
  EXPECT_TRUE(ends_[0].get().recoverable);
  EXPECT_EQ(ends_[0].get().error, "process 1 did not start again: no memory");
}

TEST_F(OnlyTeacher, and_a_further_loss_take_the_run_back) {  // SV-9
  start();
  kill(1);
  kill(2);
  bench_.send(supervisors_[0], LossSettled{});
  bench_.deliver_all();
  ASSERT_TRUE(ended(0));
  EXPECT_TRUE(ends_[0].get().recoverable);
}

}  // namespace
}  // namespace maestro
