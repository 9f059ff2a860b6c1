// SPDX-License-Identifier: Apache-2.0
#include "actors/run/supervisor/run_membership.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

namespace maestro {
namespace {

constexpr ProcessId p0(0), p1(1), p2(2), p3(3);
constexpr std::array counted_by_root = {Milestone::joined, Milestone::introduced, Milestone::connected,
                                        Milestone::ready, Milestone::summarised};

/// Returns the membership of a process in a job with three processes, all on one host unless `hosts` differ.
RunMembership member(ProcessId process, std::vector<std::uint32_t> hosts = {0, 0, 0}) {
  return {process, std::move(hosts)};
}

/// Records at rank 0 that all processes have reached a milestone.
void reach(RunMembership& root, Milestone milestone) {
  for (std::uint32_t process = 0; process < root.processes(); ++process) root.record(milestone, ProcessId(process));
}

/// Returns rank 0's membership in this phase, at most `finishing`.
RunMembership root_in(RunPhase phase) {
  RunMembership root = member(p0);
  if (phase >= RunPhase::connecting) root.listed();
  if (phase >= RunPhase::wiring) root.wired();
  if (phase >= RunPhase::running) reach(root, Milestone::ready);
  if (phase >= RunPhase::finishing) root.finish();
  return root;
}

TEST(RunMembership, the_phases_follow_the_run_on_rank_0) {
  RunMembership root = member(p0);
  EXPECT_EQ(root.phase(), RunPhase::gathering);
  EXPECT_EQ(root.listed(), Tally::last) << "rank 0 has no peers to ping";
  EXPECT_EQ(root.phase(), RunPhase::connecting);
  EXPECT_TRUE(root.wired());
  EXPECT_EQ(root.phase(), RunPhase::wiring);
  reach(root, Milestone::ready);
  EXPECT_EQ(root.phase(), RunPhase::running);
  EXPECT_TRUE(root.finish());
  EXPECT_EQ(root.phase(), RunPhase::finishing);
  reach(root, Milestone::summarised);
  EXPECT_EQ(root.phase(), RunPhase::ended);
}

TEST(RunMembership, another_process_stays_in_wiring_until_the_run_finishes) {
  RunMembership other = member(p2);
  other.listed();
  other.wired();
  EXPECT_EQ(other.phase(), RunPhase::wiring);
  EXPECT_TRUE(other.finish());
  EXPECT_EQ(other.phase(), RunPhase::finishing);
  other.end();
  EXPECT_EQ(other.phase(), RunPhase::ended);
}

TEST(RunMembership, a_repeated_message_does_not_stand_for_another_process) {  // RM-1
  for (const Milestone milestone : counted_by_root) {
    RunMembership root = member(p0);
    EXPECT_EQ(root.record(milestone, p1), Tally::counted);
    for (int repeat = 0; repeat < 3; ++repeat) EXPECT_EQ(root.record(milestone, p1), Tally::ignored);
    EXPECT_EQ(root.count(milestone), 1u);
    EXPECT_FALSE(root.complete(milestone));
  }
}

TEST(RunMembership, an_id_outside_the_job_does_not_count) {  // RM-1
  RunMembership root = member(p0);
  EXPECT_EQ(root.record(Milestone::joined, p3), Tally::ignored);
  EXPECT_EQ(root.count(Milestone::joined), 0u);
}

TEST(RunMembership, a_milestone_is_completed_by_the_last_process_alone) {  // RM-2
  for (const Milestone milestone : counted_by_root) {
    RunMembership root = member(p0);
    EXPECT_EQ(root.record(milestone, p2), Tally::counted);
    EXPECT_EQ(root.record(milestone, p0), Tally::counted);
    EXPECT_EQ(root.record(milestone, p1), Tally::last);
    EXPECT_EQ(root.record(milestone, p1), Tally::ignored);
    EXPECT_TRUE(root.complete(milestone));
  }
}

TEST(RunMembership, a_process_is_connected_when_the_list_and_all_pings_have_come_in_either_order) {  // RM-2
  RunMembership list_first = member(p1, {0, 0, 0, 0});
  EXPECT_EQ(list_first.listed(), Tally::counted);
  EXPECT_EQ(list_first.record(Milestone::pinged, p3), Tally::counted);
  EXPECT_EQ(list_first.record(Milestone::pinged, p2), Tally::last);
  EXPECT_EQ(list_first.listed(), Tally::ignored);

  RunMembership list_last = member(p1, {0, 0, 0, 0});
  EXPECT_EQ(list_last.record(Milestone::pinged, p2), Tally::counted);
  EXPECT_EQ(list_last.record(Milestone::pinged, p3), Tally::counted);
  EXPECT_EQ(list_last.listed(), Tally::last);
  EXPECT_EQ(list_last.listed(), Tally::ignored);
}

TEST(RunMembership, a_process_pings_neither_itself_nor_rank_0) {
  EXPECT_EQ(member(p1, {0, 0}).listed(), Tally::last) << "two processes are connected by joining";
  RunMembership other = member(p1);
  EXPECT_EQ(other.record(Milestone::pinged, p0), Tally::ignored);
  EXPECT_EQ(other.record(Milestone::pinged, p1), Tally::ignored);
  EXPECT_EQ(member(p0).record(Milestone::pinged, p1), Tally::ignored);
}

TEST(RunMembership, an_event_of_an_earlier_phase_does_not_lead_back) {  // RM-3
  RunMembership root = root_in(RunPhase::finishing);
  EXPECT_EQ(root.listed(), Tally::ignored);
  EXPECT_FALSE(root.wired());
  EXPECT_FALSE(root.finish());
  EXPECT_EQ(root.phase(), RunPhase::finishing);

  RunMembership early = root_in(RunPhase::wiring);
  early.finish();
  reach(early, Milestone::ready);
  EXPECT_EQ(early.phase(), RunPhase::finishing);
  EXPECT_TRUE(early.complete(Milestone::ready));
}

TEST(RunMembership, after_the_end_nothing_counts_and_nothing_is_due) {  // RM-4
  RunMembership root = root_in(RunPhase::connecting);
  EXPECT_TRUE(root.fail());
  EXPECT_FALSE(root.fail());
  EXPECT_FALSE(root.finish());
  EXPECT_FALSE(root.wired());
  EXPECT_FALSE(root.settle());
  EXPECT_FALSE(root.child_ended(p1, "signal 9"));
  EXPECT_EQ(root.lost(p1), LossVerdict::ignored);
  EXPECT_EQ(root.loss(), std::nullopt);
  for (const Milestone milestone : counted_by_root) {
    reach(root, milestone);
    EXPECT_EQ(root.count(milestone), 0u);
  }
}

TEST(RunMembership, a_loss_before_the_run_finishes_is_noted_on_rank_0) {
  for (const RunPhase phase : {RunPhase::gathering, RunPhase::connecting, RunPhase::wiring, RunPhase::running}) {
    RunMembership root = root_in(phase);
    EXPECT_EQ(root.lost(p2), LossVerdict::noted);
    EXPECT_EQ(root.phase(), RunPhase::settling);
    EXPECT_EQ(root.loss(), p2);
    EXPECT_TRUE(root.settle());
    EXPECT_EQ(root.phase(), RunPhase::ended);
    EXPECT_EQ(root.loss(), p2);
  }
}

TEST(RunMembership, another_process_notes_the_loss_of_rank_0_alone) {
  RunMembership other = member(p1);
  EXPECT_EQ(other.lost(p2), LossVerdict::peer);
  EXPECT_EQ(other.phase(), RunPhase::gathering);
  EXPECT_EQ(other.lost(p0), LossVerdict::noted);
}

TEST(RunMembership, a_process_whose_summary_has_come_may_end) {  // RM-5
  RunMembership root = root_in(RunPhase::finishing);
  root.record(Milestone::summarised, p1);
  EXPECT_EQ(root.lost(p1), LossVerdict::ignored);
  EXPECT_EQ(root.lost(p2), LossVerdict::noted) << "its summary is missing";
}

TEST(RunMembership, while_the_run_finishes_peers_may_end_and_the_end_of_rank_0_ends_the_run) {  // RM-5
  RunMembership other = member(p1);
  other.finish();
  EXPECT_EQ(other.lost(p2), LossVerdict::ignored);
  EXPECT_EQ(other.phase(), RunPhase::finishing);
  EXPECT_EQ(other.lost(p0), LossVerdict::run_over);
  EXPECT_EQ(other.phase(), RunPhase::ended);
  EXPECT_EQ(other.loss(), std::nullopt);
}

TEST(RunMembership, while_a_loss_settles_neither_failures_nor_losses_count) {  // RM-6
  RunMembership root = root_in(RunPhase::running);
  root.lost(p1);
  EXPECT_FALSE(root.fail());
  EXPECT_EQ(root.lost(p2), LossVerdict::ignored);
  EXPECT_FALSE(root.child_ended(p2, "signal 9"));
  EXPECT_EQ(root.loss(), p1);
  EXPECT_TRUE(root.settle());
}

TEST(RunMembership, all_summaries_end_the_run_in_order_also_while_a_loss_settles) {  // RM-6
  RunMembership root = root_in(RunPhase::running);
  root.lost(p1);
  EXPECT_TRUE(root.finish());
  EXPECT_EQ(root.phase(), RunPhase::settling);
  reach(root, Milestone::summarised);
  EXPECT_EQ(root.phase(), RunPhase::ended);
  EXPECT_FALSE(root.settle());
}

TEST(RunMembership, the_end_of_a_child_fails_the_run_until_it_runs_and_is_remembered) {
  RunMembership starting = root_in(RunPhase::wiring);
  EXPECT_TRUE(starting.child_ended(p1, "exit status 1"));
  EXPECT_EQ(starting.how_ended(p1), "exit status 1");
  EXPECT_EQ(starting.how_ended(p2), std::nullopt);
  RunMembership running = root_in(RunPhase::running);
  EXPECT_FALSE(running.child_ended(p1, "signal 9"));
  EXPECT_EQ(running.how_ended(p1), "signal 9");
}

TEST(RunMembership, the_lowest_process_of_a_host_that_is_not_lost_prints) {  // SV-3
  const std::vector<std::uint32_t> hosts = {0, 0, 1, 1};
  EXPECT_TRUE(member(p0, hosts).prints());
  EXPECT_FALSE(member(p1, hosts).prints());
  EXPECT_TRUE(member(p2, hosts).prints());
  EXPECT_FALSE(member(p3, hosts).prints());
  RunMembership other = member(p1, hosts);
  other.lost(p0);
  EXPECT_TRUE(other.prints());
  other.settle();
  EXPECT_TRUE(other.prints());
  EXPECT_TRUE(other.on_this_host(p0));
  EXPECT_FALSE(other.on_this_host(p2));
}

/// The processes of a job. Their messages are delivered in random order, some twice.
class RandomJob {
 public:
  RandomJob(std::uint32_t seed, std::uint32_t processes) : random_(seed) {
    for (std::uint32_t process = 0; process < processes; ++process) {
      members_.emplace_back(ProcessId(process), std::vector<std::uint32_t>(processes, 0));
    }
  }
  /// Runs from the start to Begin.
  void start() {
    for (const ProcessId process : all()) send([=, this] { members_[0].record(Milestone::joined, process); });
    for (const ProcessId process : all()) send([=, this] { introduced(process); });
    deliver_all();
  }
  /// Runs from Finish to Shutdown.
  void finish() {
    for (const ProcessId process : all()) {
      send([=, this] {
        if (at(process).finish()) send([=, this] { summarised(process); });
      });
    }
    deliver_all();
  }
  [[nodiscard]] RunMembership& at(ProcessId process) { return members_[process.value()]; }
  [[nodiscard]] std::vector<ProcessId> all() const {
    std::vector<ProcessId> processes;
    for (std::uint32_t process = 0; process < members_.size(); ++process) processes.emplace_back(process);
    return processes;
  }
  int lists = 0, directories = 0, begins = 0, shutdowns = 0;

 private:
  void send(std::function<void()> message) {
    if (random_() % 4 == 0) pending_.push_back(message);
    pending_.push_back(std::move(message));
  }
  void deliver_all() {
    while (!pending_.empty()) {
      std::swap(pending_[random_() % pending_.size()], pending_.back());
      const std::function<void()> message = std::move(pending_.back());
      pending_.pop_back();
      message();
    }
  }
  void introduced(ProcessId process) {
    if (members_[0].record(Milestone::introduced, process) != Tally::last) return;
    ++lists;
    for (const ProcessId to : all()) send([=, this] { listed(to); });
  }
  void listed(ProcessId process) {
    const Tally tally = at(process).listed();
    if (tally == Tally::ignored) return;
    for (const ProcessId lower : all()) {
      if (lower < process && lower != p0) send([=, this] { ping(process, lower); });
    }
    if (tally == Tally::last) report_connected(process);
  }
  void ping(ProcessId from, ProcessId to) {
    if (at(to).record(Milestone::pinged, from) == Tally::last) report_connected(to);
    send([=, this] {
      if (at(from).record(Milestone::pinged, to) == Tally::last) report_connected(from);
    });
  }
  void report_connected(ProcessId process) {
    EXPECT_EQ(at(process).phase(), RunPhase::connecting);
    send([=, this] {
      if (members_[0].record(Milestone::connected, process) != Tally::last) return;
      ++directories;
      for (const ProcessId to : all()) send([=, this] { wired(to); });
    });
  }
  void wired(ProcessId process) {
    if (!at(process).wired()) return;
    send([=, this] {
      if (members_[0].record(Milestone::ready, process) == Tally::last) ++begins;
    });
  }
  void summarised(ProcessId process) {
    if (members_[0].record(Milestone::summarised, process) != Tally::last) return;
    ++shutdowns;
    for (const ProcessId to : all()) send([=, this] { at(to).end(); });
  }

  std::mt19937 random_;
  std::vector<RunMembership> members_;
  std::vector<std::function<void()>> pending_;
};

TEST(RunMembership, takes_a_job_from_start_to_end_in_any_order_of_messages_with_repeats) {  // RM-1, RM-2, RM-3
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomJob job(seed, 1 + seed % 6);
    job.start();
    EXPECT_EQ(job.lists, 1);
    EXPECT_EQ(job.directories, 1);
    EXPECT_EQ(job.begins, 1);
    EXPECT_EQ(job.at(p0).phase(), RunPhase::running);
    EXPECT_EQ(job.at(p0).count(Milestone::joined), job.all().size());
    job.finish();
    EXPECT_EQ(job.shutdowns, 1);
    for (const ProcessId process : job.all()) EXPECT_EQ(job.at(process).phase(), RunPhase::ended);
  }
}

/// Applies a random event. Returns whether it ended the run.
bool random_event(RunMembership& member, std::mt19937& random) {
  const RunPhase before = member.phase();
  const ProcessId process(random() % 4);
  bool noted = false;
  bool ends = false;
  switch (random() % 12) {
    case 0:
      ends = member.fail();
      break;
    case 1:
      ends = member.settle();
      break;
    case 2: {
      const LossVerdict verdict = member.lost(process);
      noted = verdict == LossVerdict::noted;
      ends = verdict == LossVerdict::run_over;
      break;
    }
    case 3:
      member.listed();
      break;
    case 4:
      member.wired();
      break;
    case 5:
      member.finish();
      break;
    case 6:
      member.child_ended(process, "signal 9");
      break;
    default: {
      const auto milestone = static_cast<Milestone>(random() % 6);
      ends = member.record(milestone, process) == Tally::last && milestone == Milestone::summarised;
    }
  }
  EXPECT_GE(member.phase(), before);                                                       // RM-3
  EXPECT_EQ(ends, before != RunPhase::ended && member.phase() == RunPhase::ended);         // RM-4
  EXPECT_EQ(noted, before != RunPhase::settling && member.phase() == RunPhase::settling);  // RM-6
  return ends;
}

TEST(RunMembership, goes_forward_and_ends_at_most_once_under_random_events) {  // RM-3, RM-4, RM-6
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    RunMembership own = member(ProcessId(random() % 3));
    int ends = 0;
    for (int event = 0; event < 100; ++event) ends += random_event(own, random) ? 1 : 0;
    EXPECT_LE(ends, 1);
    EXPECT_EQ(ends == 1, own.phase() == RunPhase::ended);
  }
}

}  // namespace
}  // namespace maestro
