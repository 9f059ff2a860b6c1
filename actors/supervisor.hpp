// One supervisor per process. Rank 0's gathers everybody, wires the job up, watches for deaths and ends the run; the
// others report to it and watch it in turn.
//
// SV-1: the outcome of a process is decided once, by the first failure or by the orderly end.
// SV-2: a death is told by CAF's down message; whoever notices first tells all others.
// SV-3: exactly one process prints the error of a failed run: rank 0, or rank 1 when rank 0 itself was lost.
// SV-4: a loss is reported `settle_time` after it was noticed, with what the survivors and the launcher said until
// then.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/messages.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

struct RunOutcome {
  bool ok = false;
  std::string error;  ///< one line; empty when another process prints it
  std::vector<ProcessSummary> processes;
  std::vector<std::int64_t> lost_pids;
};

/// Set once; read by the process's main thread.
class OutcomePromise {
 public:
  void set(RunOutcome outcome) {
    if (!decided_.exchange(true)) promise_.set_value(std::move(outcome));  // SV-1
  }
  [[nodiscard]] std::future<RunOutcome> future() { return promise_.get_future(); }

 private:
  std::atomic<bool> decided_ = false;
  std::promise<RunOutcome> promise_;
};

/// "process 2 (pid 4711, section 'student' replica 0)".
[[nodiscard]] std::string process_label(const ProcessHello& process, const SectionGraph& graph);

struct SupervisorOptions {
  const SectionGraph* graph = nullptr;
  ProcessRank rank;
  std::int64_t processes = 1;
  std::chrono::milliseconds start_timeout{60000};
  std::string build;
  std::shared_ptr<OutcomePromise> outcome;  ///< shared with the main thread
  std::atomic<std::uint64_t>* current_step = nullptr;
  std::function<ProcessSummary()> summary;
};

/// The process's own actors, told after they were spawned.
struct LocalActors {
  ProcessHello hello;
  caf::actor bridge;
  caf::actor coordinator;  ///< rank 0 only
  caf::actor root;         ///< rank 0's supervisor; this actor itself on rank 0
};

/// A lost process, and what the survivors wait for.
struct Loss {
  ProcessRank rank;
  std::int64_t pid = 0;
  std::string peer;
  std::string step;
  std::vector<std::string> waiting;
};

class Supervisor : public caf::event_based_actor {
 public:
  Supervisor(caf::actor_config& config, SupervisorOptions options);
  caf::behavior make_behavior() override;
  const char* name() const override { return "maestro.supervisor"; }
  void on_exit() override;

 private:
  [[nodiscard]] bool is_root() const { return options_.rank == ProcessRank(0); }
  [[nodiscard]] bool prints() const { return is_root() || options_.rank == ProcessRank(1); }  // SV-3
  void introduced(const ProcessHello& hello);
  void wire(const Directory& directory);
  void ready(const ProcessReady& ready);
  void lost(const caf::down_msg& down);
  void ask_survivors();
  void survivor_waits(const WaitingFor& answer);
  [[nodiscard]] std::string how_lost() const;
  void report_loss();
  void child_ended(const ChildEnded& child);
  void fail(const std::string& message, bool print);
  void finish();
  void summarised(const ProcessSummary& summary);

  SupervisorOptions options_;
  LocalActors local_;
  Directory directory_;
  std::map<caf::actor_addr, ProcessHello> watched_;
  std::size_t ready_ = 0;
  bool wired_ = false;
  bool finishing_ = false;
  bool ended_ = false;
  std::vector<ProcessSummary> summaries_;
  std::set<ProcessRank> summarised_;
  std::map<ProcessRank, std::string> how_ended_;  // of children, from their parent's wait
  std::optional<Loss> loss_;                      // while the survivors are asked
};

/// To the supervisor itself: what is not known about a loss by now stays unknown.
struct LossSettled {};

}  // namespace maestro

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::LossSettled)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::LocalActors)
