// SPDX-License-Identifier: Apache-2.0
// Losses of processes, and their reports.
#include <algorithm>

#include "actors/messages/wait_text.hpp"
#include "actors/run/supervisor.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

namespace {
constexpr std::chrono::milliseconds settle_time(250);
constexpr std::chrono::seconds rescue_limit(20);
constexpr std::chrono::milliseconds stay_limit(500);  // for a process to answer that it stays
}  // namespace

void Supervisor::lost(const ProcessInfo& peer) {
  if (staying_) {
    RunOutcome outcome;
    outcome.again = true;
    if (peer.process == ProcessId(0)) options_.outcome->set(std::move(outcome));
    return;
  }
  if (is_successor(peer.process) && !change_.under_way()) return successor_failed({peer.process, "it was lost"});
  if (move_seats_of(peer)) return;
  switch (membership_.lost(peer.process)) {
    case LossVerdict::ignored:
      if (rescuing_ && peer.process != membership_.loss()) report_loss();  // SV-12
      return;
    case LossVerdict::neighbour:
      // Rank 0 also detects most of these losses and reports more: wait for its report first.
      return delayed_send(this, 2 * options_.peer_timeout,
                          NeighbourLost{peer.supervisor.address(), process_label(peer, *options_.graph)});
    case LossVerdict::run_over:
      return end_in_order();
    case LossVerdict::noted:
      return note_loss(peer);
  }
}

void Supervisor::note_loss(const ProcessInfo& peer) {
  loss_.noticed = std::chrono::steady_clock::now();
  loss_.identity = peer.identity;
  loss_.peer = peer.identity.pid == 0 ? "process 0 (coordinator)" : process_label(peer, *options_.graph);
  loss_.step = std::to_string(options_.current_step->load(std::memory_order_relaxed));
  if (!prints()) return report_loss();
  delayed_send(this, settle_time, LossSettled{});
  query_survivors();
}

void Supervisor::query_survivors() {
  for (const ReplicaAddress& replica : directory_.replicas()) {
    const bool queried = membership_.is_root() || replica.process == options_.process;
    if (!queried || replica.process == membership_.loss()) continue;
    request(replica.actor, settle_time, StatusRequest{})
        .then([this](const WaitingFor& answer) { survivor_waits(answer); }, [](const caf::error&) {});  // SV-4
  }
}

void Supervisor::survivor_waits(const WaitingFor& answer) {
  const std::string text = wait_text(answer, *options_.graph);
  if (text.empty()) return;
  loss_.waiting.push_back("section '" + options_.graph->node(answer.section).name + "' replica " +
                          std::to_string(answer.replica.value()) + " waits for " + text);
}

bool Supervisor::prints() const {
  if (options_.seats.by_hand) return true;
  const bool left_to_root = options_.recovers && !membership_.is_root() && membership_.loss() != ProcessId(0);
  return membership_.prints() && !left_to_root;
}

std::string Supervisor::loss_text(ProcessId lost) const {
  const bool settled = membership_.is_root() && membership_.loss();  // then the launcher has reported a death
  std::string how = settled ? "it was silent for too long" : "it died, or was silent for too long";
  if (const auto end = membership_.how_ended(lost)) how = "it ended with " + *end;
  return "lost " + loss_.peer + " in step " + loss_.step + ": " + how;
}

void Supervisor::rescue_state() {
  if (!options_.rescues || membership_.loss() == ProcessId(0) || !local_.coordinator) return report_loss();
  for (const ProcessInfo& process : directory_.processes) {
    const bool survives = process.process != options_.process && process.process != membership_.loss();
    if (survives) send_to(this, process.supervisor, ProcessGone{*membership_.loss(), true});
  }
  rescuing_ = true;
  request(local_.coordinator, rescue_limit, Rescue{*membership_.loss()})
      .then([this](Rescued) { report_loss(); }, [this](const caf::error&) { report_loss(); });
}

void Supervisor::not_rescued(const std::string& problem) {
  loss_.waiting.push_back("the state of the other replicas could not be kept: " + problem);
  report_loss();
}

void Supervisor::report_loss() {
  if (!membership_.settle()) return;
  const ProcessId lost = *membership_.loss();
  RunOutcome outcome;
  outcome.recoverable = lost != ProcessId(0);
  outcome.lost_at = loss_.noticed;
  if (prints()) {
    outcome.error = loss_text(lost);
    for (const std::string& waiting : loss_.waiting) outcome.error += "; " + waiting;
  }
  if (membership_.on_this_host(lost)) outcome.lost.push_back(loss_.identity);
  if (!membership_.is_root()) return options_.outcome->set(std::move(outcome));
  const bool again = outcome.recoverable && options_.may_recover && options_.may_recover();
  end_start(std::move(outcome), loss_text(lost), again);
}

/// On rank 0: ends the other processes of this start, or has them stay for the next.
void Supervisor::end_start(RunOutcome outcome, const std::string& reason, bool again) {
  auto ending = std::make_shared<RunOutcome>(std::move(outcome));
  auto due = std::make_shared<std::size_t>(1);  // this function
  const auto answered = [ending, due, promise = options_.outcome] {
    if (--*due == 0) promise->set(std::move(*ending));
  };
  for (const auto& [address, peer] : watched_) {
    if (peer.process == membership_.loss()) continue;
    const bool of_start =
        !joins_later(peer.process) && !membership_.has_left(peer.process) && !is_successor(peer.process);
    if (!again || !of_start) {
      send_to(this, peer.supervisor, Failure{reason});
      continue;
    }
    ++*due;
    request(peer.supervisor, stay_limit, StartAgain{})
        .then(
            [ending, answered, process = peer.process](StartAgain) {
              ending->stay.insert(process);
              answered();
            },
            [answered](const caf::error&) { answered(); });
  }
  answered();
}

caf::result<StartAgain> Supervisor::stay() {
  membership_.end();
  if (ends_ || !options_.stays) {
    if (!ends_) options_.outcome->set({});  // else its own end sets it
    return caf::make_error(caf::sec::runtime_error, "this process cannot take part in another start");
  }
  staying_ = true;
  return StartAgain{};
}

void Supervisor::neighbour_lost(const NeighbourLost& loss) {
  if (!watched_.contains(loss.supervisor)) return;  // its seats have moved
  fail({"process " + std::to_string(options_.process.value()) + " lost its connection to " + loss.peer + " in step " +
        std::to_string(options_.current_step->load(std::memory_order_relaxed)) +
        ", which process 0 still reaches; check the network between their hosts"},
       prints());
}

}  // namespace maestro
