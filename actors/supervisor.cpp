#include "actors/supervisor.hpp"

#include "actors/wait_text.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

namespace {
constexpr std::chrono::milliseconds settle_time(250);
}

std::string process_label(const ProcessHello& process, const SectionGraph& graph) {
  std::string label = "process " + std::to_string(process.rank.value()) + " (pid " + std::to_string(process.pid);
  if (process.rank == ProcessRank(0)) label += ", coordinator";
  for (const ReplicaAddress& replica : process.replicas) {
    label += ", section '" + graph.node(replica.section).name + "' replica " + std::to_string(replica.replica.value());
  }
  return label + ")";
}

Supervisor::Supervisor(caf::actor_config& config, SupervisorOptions options)
    : caf::event_based_actor(config), options_(std::move(options)) {
  set_down_handler([this](caf::down_msg& down) { lost(down); });
}

void Supervisor::on_exit() {
  local_ = LocalActors();
  directory_ = Directory();
  watched_.clear();
}

caf::behavior Supervisor::make_behavior() {
  return {
      [this](const LocalActors& local) {
        local_ = local;
        if (!is_root()) monitor(local_.root);
        tell(this, local_.root, local_.hello);
        if (is_root()) delayed_send(this, options_.start_timeout, StartTimeout{});
      },
      [this](const ProcessHello& hello) { introduced(hello); },
      [this](const Directory& directory) { wire(directory); },
      [this](BridgeReady) { tell(this, local_.root, ProcessReady{options_.rank}); },
      [this](const ProcessReady& message) { ready(message); },
      [this](StartTimeout) {
        if (wired_) return;
        fail("only " + std::to_string(directory_.processes.size()) + " of " + std::to_string(options_.processes) +
                 " processes came up within " + std::to_string(options_.start_timeout.count() / 1000) + " s",
             true);
      },
      [this](const ChildEnded& child) { child_ended(child); },
      [this](LossSettled) { report_loss(); },
      [this](Farewell) {
        ended_ = true;
        RunOutcome outcome;
        outcome.ok = true;
        options_.outcome->set(std::move(outcome));
      },
      [this](const Failure& failure) { fail(failure.message, is_root()); },
      [this](Finish) { finish(); },
      [this](const ProcessSummary& summary) { summarised(summary); },
  };
}

void Supervisor::introduced(const ProcessHello& hello) {
  if (hello.build != options_.build) {
    return fail("process " + std::to_string(hello.rank.value()) + " runs another version or job: " + hello.build +
                    " instead of " + options_.build,
                true);
  }
  directory_.processes.push_back(hello);
  if (hello.rank != options_.rank) {
    monitor(hello.supervisor);
    watched_[hello.supervisor.address()] = hello;
  }
  if (static_cast<std::int64_t>(directory_.processes.size()) < options_.processes) return;
  directory_.coordinator = local_.coordinator;
  for (const ProcessHello& process : directory_.processes) tell(this, process.supervisor, directory_);
}

void Supervisor::wire(const Directory& directory) {
  directory_ = directory;
  for (const ProcessHello& process : directory_.processes) {
    if (!is_root() && process.rank == ProcessRank(0)) watched_[process.supervisor.address()] = process;
  }
  for (const ReplicaAddress& replica : local_.hello.replicas) tell(this, replica.actor, directory_);
  if (is_root()) tell(this, local_.coordinator, directory_);
  tell(this, local_.bridge, directory_);
}

void Supervisor::ready(const ProcessReady&) {
  if (++ready_ < static_cast<std::size_t>(options_.processes)) return;
  wired_ = true;
  tell(this, local_.coordinator, Begin{});
}

void Supervisor::child_ended(const ChildEnded& child) {
  how_ended_[child.rank] = child.how;
  if (wired_ || finishing_ || ended_ || loss_) return;  // then CAF's down message is the authority (SV-2)
  fail("process " + std::to_string(child.rank.value()) + " ended before the job began: " + child.how, true);
}

void Supervisor::lost(const caf::down_msg& down) {
  if (ended_ || loss_) return;
  const auto found = watched_.find(down.source);
  if (finishing_) {
    if (!is_root()) {  // rank 0 has all it wanted
      RunOutcome outcome;
      outcome.ok = true;
      ended_ = true;
      return options_.outcome->set(std::move(outcome));
    }
    if (found != watched_.end() && summarised_.count(found->second.rank) != 0) return;
  }
  std::string peer = is_root() ? "a process" : "process 0 (coordinator)";
  std::int64_t pid = 0;
  if (found != watched_.end()) {
    peer = process_label(found->second, *options_.graph);
    pid = found->second.pid;
  }
  Loss loss;
  loss.rank = found != watched_.end() ? found->second.rank : ProcessRank(0);
  loss.pid = pid;
  loss.peer = peer;
  loss.step = std::to_string(options_.current_step->load(std::memory_order_relaxed));
  loss_ = std::move(loss);
  ask_survivors();
}

void Supervisor::ask_survivors() {
  if (!prints()) return report_loss();
  delayed_send(this, settle_time, LossSettled{});
  for (const ProcessHello& process : directory_.processes) {
    if (process.rank == loss_->rank || (!is_root() && process.rank != options_.rank)) continue;
    for (const ReplicaAddress& replica : process.replicas) {
      request(replica.actor, settle_time, StatusRequest{})
          .then([this](const WaitingFor& answer) { survivor_waits(answer); }, [](const caf::error&) {});  // SV-4
    }
  }
}

void Supervisor::survivor_waits(const WaitingFor& answer) {
  const std::string text = wait_text(answer, *options_.graph);
  if (text.empty() || !loss_) return;
  loss_->waiting.push_back("section '" + options_.graph->node(answer.section).name + "' replica " +
                           std::to_string(answer.replica.value()) + " waits for " + text);
}

std::string Supervisor::how_lost() const {
  const auto how = how_ended_.find(loss_->rank);
  if (how != how_ended_.end()) return "it ended with " + how->second;
  return is_root() ? "it was silent for too long" : "it died, or was silent for too long";
}

void Supervisor::report_loss() {
  ended_ = true;
  RunOutcome outcome;
  if (prints()) {
    outcome.error = "lost " + loss_->peer + " in step " + loss_->step + ": " + how_lost();
    for (const std::string& waiting : loss_->waiting) outcome.error += "; " + waiting;
  }
  if (loss_->pid != 0) outcome.lost_pids.push_back(loss_->pid);
  if (is_root()) {
    for (const auto& [address, process] : watched_) {
      if (process.rank != loss_->rank) tell(this, process.supervisor, Failure{loss_->peer + " was lost"});
    }
  }
  options_.outcome->set(std::move(outcome));
}

void Supervisor::fail(const std::string& message, bool print) {
  if (ended_ || loss_) return;  // what breaks behind a loss is its consequence
  ended_ = true;
  if (is_root()) {
    for (const auto& [address, process] : watched_) tell(this, process.supervisor, Failure{message});
  } else if (local_.root) {
    tell(this, local_.root, Failure{message});
  }
  RunOutcome outcome;
  if (print) outcome.error = message;
  options_.outcome->set(std::move(outcome));
}

void Supervisor::finish() {
  finishing_ = true;
  if (is_root()) {
    for (const ProcessHello& process : directory_.processes) {
      if (process.rank != options_.rank) tell(this, process.supervisor, Finish{});
    }
    return summarised(options_.summary());
  }
  tell(this, local_.root, options_.summary());
}

void Supervisor::summarised(const ProcessSummary& summary) {
  summaries_.push_back(summary);
  summarised_.insert(summary.rank);
  for (const auto& [address, process] : watched_) {
    if (process.rank == summary.rank) tell(this, process.supervisor, Farewell{});
  }
  if (static_cast<std::int64_t>(summaries_.size()) < options_.processes) return;
  ended_ = true;
  RunOutcome outcome;
  outcome.ok = true;
  outcome.processes = summaries_;
  options_.outcome->set(std::move(outcome));
}

}  // namespace maestro
