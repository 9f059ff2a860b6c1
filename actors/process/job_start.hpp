// SPDX-License-Identifier: Apache-2.0
// Brings the processes of a job together before anything is built: finds out where this one listens and what it shows
// the others, starts them if that is its part, and lets them in, or joins rank 0.
//
// JS-1: on one host the processes meet at a local socket that only their user can open, and listen on loopback.
// JS-2: between hosts every connection of control is TLS with mutual certificates, and the job's token is asked for.
// JS-3: when the job cannot begin, every process that was reached ends with the same line.
// JS-4: a process that rank 0 has started ends within two seconds of rank 0, at any moment until begun(); of those of
// one
//       host at most one prints that.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "actors/launch/launch_info.hpp"
#include "actors/launch/launcher.hpp"
#include "actors/launch/parent_watch.hpp"
#include "actors/launch/rendezvous.hpp"
#include "actors/launch/run_keys.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/job/config.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

/// What all processes of a run know when they have met.
struct Meeting {
  Epoch epoch;
  std::string secret;        ///< processes of other runs do not have it
  std::string root_address;  ///< where rank 0's supervisor is published
  std::uint16_t root_port = 0;
  std::string shared_file;  ///< in the output folder, written by rank 0
};
/// Of a process alone.
[[nodiscard]] Meeting new_meeting();

struct JobStartOptions {
  LaunchInfo run;
  TransportConfig transport;
  std::string ssh;                   ///< RunOptions::ssh
  std::vector<std::string> command;  ///< RunOptions::command
};

/// Of the file in the output folder by which hosts find out that they share it; digits follow.
inline constexpr const char* meeting_file_prefix = ".maestro-";

/// What all processes must have in common.
struct JobText {
  std::string job;                          ///< TOML
  std::filesystem::path shared_folder;      ///< where all hosts store files of the run; empty: none does
  std::chrono::milliseconds silence{4000};  ///< after which a process counts as stopped or cut off (RV-5)
};

class JobStart {
 public:
  /// Looks at options, addresses and keys. Throws JobError.
  JobStart(JobStartOptions options, Console& console);
  ~JobStart();
  JobStart(const JobStart&) = delete;
  JobStart& operator=(const JobStart&) = delete;

  /// The address of this host that everything listens on.
  [[nodiscard]] const std::string& listen_address() const { return listen_; }
  /// Where this process takes connections of the others, as PeerAcceptor has it: a local socket that only its user can
  /// open, or listen_address().
  [[nodiscard]] std::string gate_host() const;
  /// Null when all stays on this host.
  [[nodiscard]] std::shared_ptr<const KeySet> keys() const { return keys_; }
  /// As people call this process's host; empty when there is only one.
  [[nodiscard]] const std::string& host() const { return host_; }
  /// "process 1 (host b)".
  [[nodiscard]] std::string own_name() const;

  /// Publishes rank 0's supervisor on an address and a port (0: any), and returns the port.
  using Publish = std::function<std::uint16_t(const Meeting&, const std::string& address, std::int64_t port)>;
  /// Rank 0: blocks until all are there. Throws JobError.
  [[nodiscard]] Meeting gather(Launcher& launcher, const JobText& job, const Publish& publish);
  /// The others: the same. Throws JobError.
  [[nodiscard]] Meeting join(const JobText& job);
  /// Whether this process prints why the job cannot begin; else another one of this host does.
  [[nodiscard]] bool prints_refusals() const;
  /// Of a process that found out alone that the job cannot begin: the others are told why, if they come within a few
  /// seconds. Best effort.
  void withdraw(const std::string& reason) noexcept;
  /// Throws JobError when this host does not see the output folder of rank 0, which has to hold what it stores.
  void check_shared_folder(const Meeting& meeting) const;

  /// All connections are made, or the job ends: removes the keys that were made for this run, and the shared file.
  /// Thread-safe, idempotent.
  void tidy();

  /// Everything of this process is there: the supervisors watch each other from now on (JS-4).
  void begun() { parent_watch_.reset(); }
  /// Ends this process with status 1, as rank 0 is lost to it. Thread-safe: the first call is the one that prints.
  [[noreturn]] void leave(const std::string& line);

  /// A child of the launcher has ended. Thread-safe.
  void child_ended(ProcessId rank, const std::string& how);
  /// A child of the launcher was stopped by a signal, or goes on. Thread-safe.
  void child_stopped(ProcessId rank, bool stopped);
  /// Where that is told when the processes have met; empty: nowhere.
  void route_child_ends(std::function<void(ProcessId, const std::string& how)> route);

 private:
  [[nodiscard]] bool several_hosts() const { return options_.run.several_hosts(); }
  void check_first_host() const;
  void choose_listen_address();
  void find_keys();
  [[nodiscard]] JoinRequest own_request(const std::string& job) const;
  [[nodiscard]] std::string door_address() const;
  [[nodiscard]] std::chrono::milliseconds patience() const;
  [[nodiscard]] JoinOptions join_options(const std::string& job) const;
  [[nodiscard]] std::vector<ProcessStart> starts(const ProcessEnv& place) const;
  void start_others(Launcher& launcher);
  [[nodiscard]] std::string write_shared_file(const std::filesystem::path& folder);
  void watch_parent();
  void look_at_stopped_children(std::chrono::milliseconds silence);

  JobStartOptions options_;
  Console& console_;
  std::string listen_;
  std::string host_;
  std::atomic<bool> child_printed_ = false;  // a child that has ended printed why
  std::int64_t parent_ = 0;                  // rank 0, when it is this process's parent
  std::optional<RunKeys> run_keys_;
  std::shared_ptr<const KeySet> keys_;
  std::filesystem::path shared_file_;
  std::mutex mutex_;
  std::unique_ptr<RendezvousServer> door_;
  std::function<void(ProcessId, const std::string& how)> route_;
  std::map<ProcessId, std::int64_t> stopped_;  // children that a signal has stopped: looks at them since
  std::mutex leaving_;                         // never given back
  std::unique_ptr<ParentWatch> parent_watch_;  // last: its thread uses all above
};

}  // namespace maestro
