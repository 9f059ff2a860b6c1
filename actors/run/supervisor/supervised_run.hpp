// SPDX-License-Identifier: Apache-2.0
// The state of a run in a process's supervisor: options, members, directory. The supervisor shares it with its parts
// (PeerMesh, OwnReplicas, PlacementMover, StartEnd). A placement is the process of a replica.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/messages/message_types.hpp"
#include "actors/run/supervisor/run_membership.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

struct RunOutcome {
  bool ok = false;
  std::string error;  ///< a single line; empty if another process prints it
  std::vector<ProcessSummary> processes;
  std::vector<ProcessIdentity> lost;  ///< lost processes on this host; stopped ones would remain forever
  /// The only problem is the loss of a process other than rank 0, or of a served section's process.
  bool recoverable = false;
  std::chrono::steady_clock::time_point lost_at = std::chrono::steady_clock::now();  ///< when the loss was noticed
  bool left = false;                ///< this process has left the run, which continues
  bool again = false;               ///< not rank 0: this process takes part in the next start
  bool next_stage = false;          ///< ok, and the run goes on with the job's next stage
  std::set<ProcessId> survivors{};  ///< rank 0: the other processes that take part in the next start
};

/// The outcome of a process, set once and read by its main thread.
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

/// Returns "process 2 (pid 4711, section 'student' replica 0)"; with ", host node3" in jobs on several hosts.
[[nodiscard]] std::string process_label(const ProcessInfo& peer, const SectionGraph& graph);

/// An actor that must not end before the run.
struct OwnActor {
  caf::actor actor;
  std::string label;  ///< "section 'student' replica 0"
};

/// A process's part in moves of placements (SV-8). Called by the supervisor's handlers: no call may block.
class PlacementHost {
 public:
  virtual ~PlacementHost() = default;
  /// Returns the new replicas of repeatable sections in this process.
  virtual std::vector<OwnActor> take(const MovePlacements& order) = 0;
  /// Stops a lost process if it is on this host (`here`), and ends writes to its memory.
  virtual void remove(const ProcessInfo& lost, bool here) = 0;
  /// Ends writes to the memory of a process that ends by itself.
  virtual void left(ProcessId process) = 0;

  // Rank 0 only.

  virtual void start_again(ProcessId lost) = 0;
  /// Starts a process for an elastic section.
  virtual void start_new(ProcessId process, const std::string& section) = 0;
  /// Notes that a replacement process takes part in the run.
  virtual void placed(ProcessId replacement) = 0;
  /// Notes that a recovery in place has begun.
  virtual void begun(const std::string& line) = 0;
  virtual void warn(const std::string& line) = 0;
  virtual void note(const std::string& line) = 0;
};

/// Moves of placements (SV-8).
struct PlacementOptions {
  PlacementHost* host = nullptr;     ///< null: placements do not move
  std::size_t most = 0;              ///< maximum number of moves after losses in this start
  Epoch epoch;                       ///< epoch of this start
  bool starts = false;               ///< rank 0: starts replacement processes
  bool may_join = false;             ///< processes may join and leave the job
  bool by_hand = false;              ///< this process has joined by a user's command, in a separate terminal
  std::vector<std::string> elastic;  ///< rank 0: elastic sections (SV-11)
};

struct SupervisorOptions {
  const SectionGraph* graph = nullptr;
  ProcessId process;
  std::vector<std::uint32_t> hosts = {0};  ///< host of each process that the job may have
  std::size_t joining = 0;                 ///< number of last processes that are absent at the start
  std::string host;                        ///< this process's host, as named by the user; empty if the job has one host
  bool started_again = false;              ///< a process that ends during this start counts as lost (SV-14)
  bool recovers = false;                   ///< rank 0 starts replacement processes, and prints losses (SV-3)
  bool rescues = false;                    ///< rank 0: another start may follow this one
  bool survives = false;                   ///< not rank 0: this process can take part in the next start
  std::function<bool()> may_recover;       ///< rank 0: returns whether another start follows the loss of a process
  std::chrono::milliseconds start_timeout{60000};
  /// Time for all processes, after the rendezvous, to reach rank 0's supervisor.
  std::chrono::milliseconds join_timeout{60000};
  std::chrono::milliseconds peer_timeout{2000};  ///< silence after which a process counts as lost
  /// Rank 0: returns a line about a child that has been stopped for too long. Called until all processes have joined,
  /// with the time since the previous call. May be empty.
  std::function<std::optional<std::string>(std::chrono::milliseconds since)> stopped_child;
  std::string build;
  /// Connects to a published supervisor, from a handler of this supervisor. Unused with one or two processes.
  std::function<void(caf::event_based_actor*, const std::string& host, std::uint16_t port,
                     std::function<void(const caf::actor&)> done,
                     std::function<void(const std::string& problem)> failed)>
      connect;
  /// Called by the supervisor after all connections between processes were made; may be empty.
  std::function<void(caf::event_based_actor*)> connected;
  std::shared_ptr<OutcomePromise> outcome;  ///< shared with the main thread
  std::atomic<std::uint64_t>* current_step = nullptr;
  std::function<ProcessSummary()> summary;
  std::function<void(const ProcessInfo&)> connect_transport;  ///< connects to memory; throws JobError; may be empty
  std::function<void()> stop_run;                             ///< rank 0: ends the run in order; may be empty
  std::function<bool()> stopping;                             ///< rank 0: whether a stop is under way; may be empty
  PlacementOptions placements;
};

/// The actors of this process, sent after they were spawned.
struct LocalActors {
  ProcessInfo info;
  caf::actor coordinator;     ///< rank 0 only
  std::vector<OwnActor> own;  ///< all actors of the process
};

/// Belongs to the supervisor `self`; used by its handlers only.
struct SupervisedRun {
  SupervisedRun(caf::event_based_actor* supervisor, SupervisorOptions given)
      : self(supervisor), options(std::move(given)), membership(options.process, options.hosts, options.joining) {}

  /// Returns whether this process prints an error (SV-3).
  [[nodiscard]] bool prints() const {
    if (options.placements.by_hand) return true;
    const bool left_to_root = options.recovers && !membership.is_root() && membership.loss() != ProcessId(0);
    return membership.prints() && !left_to_root;
  }
  [[nodiscard]] bool stops() const { return options.stopping && options.stopping(); }
  [[nodiscard]] bool joins_later(ProcessId process) const {
    return process.value() + options.joining >= options.hosts.size();
  }
  [[nodiscard]] std::string own_name() const { return "process " + std::to_string(options.process.value()); }
  [[nodiscard]] std::string step() const {
    return std::to_string(options.current_step->load(std::memory_order_relaxed));
  }

  caf::event_based_actor* self;
  SupervisorOptions options;
  RunMembership membership;
  LocalActors local;
  Directory directory;
  caf::actor root;              // rank 0's supervisor
  std::set<ProcessId> awaited;  // lost processes whose replacement processes the run awaits
  /// Ends this process's part of the run, if it has not ended.
  std::function<void(const std::string& problem, bool print, bool recoverable)> fail;
};

}  // namespace maestro

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::LocalActors)
