// SPDX-License-Identifier: Apache-2.0
// The access of a process to its job: its listen address, its host name, and the job's keys. JobStart uses it to bring
// the processes together (JS-1, JS-2).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/launch/join_terms.hpp"
#include "actors/launch/launch_info.hpp"
#include "actors/launch/launcher.hpp"
#include "actors/launch/rendezvous.hpp"
#include "actors/launch/run_keys.hpp"
#include "runtime/job/config.hpp"

namespace maestro {

struct JobStartOptions {
  LaunchInfo run;
  TransportConfig transport;
  std::string ssh;                   ///< RunOptions::ssh
  std::vector<std::string> command;  ///< RunOptions::command
};

/// Constant except for the command and generated keys, which JobStart guards.
class JobAccess {
 public:
  /// Checks options, addresses and keys. Throws JobError.
  explicit JobAccess(JobStartOptions options);

  [[nodiscard]] const JobStartOptions& options() const { return options_; }
  [[nodiscard]] const ProcessEnv& place() const { return options_.run.place; }
  [[nodiscard]] bool several_hosts() const { return options_.run.several_hosts(); }
  /// Returns this host's address, which all of its listeners use.
  [[nodiscard]] const std::string& listen() const { return listen_; }
  [[nodiscard]] bool on_loopback() const;
  /// Returns this process's host as named by the user; empty in a job on a single host.
  [[nodiscard]] const std::string& host() const { return host_; }
  /// Returns "process 1 (host b)".
  [[nodiscard]] std::string own_name() const;
  /// Returns the job's keys; null if the job uses only this host.
  [[nodiscard]] const std::shared_ptr<const KeySet>& keys() const { return keys_; }
  /// Returns whether the keys were generated for this run.
  [[nodiscard]] bool generated_keys() const { return run_keys_.has_value(); }
  void drop_generated_keys() { run_keys_.reset(); }
  void set_command(std::vector<std::string> command) { options_.command = std::move(command); }

  /// Returns the address of this process's PeerAcceptor: listen(), or a local socket that only the process's user can
  /// open.
  [[nodiscard]] std::string gate_host() const;
  /// Returns the address of rank 0's rendezvous. `earlier_port`: port of an earlier start; 0: none.
  [[nodiscard]] std::string server_address(std::int64_t earlier_port) const;
  /// Returns this process's request to join. `job`: JobText::job.
  [[nodiscard]] JoinRequest own_request(const std::string& job) const;
  /// Returns the options with which a process other than rank 0 joins. `job`: as in own_request().
  [[nodiscard]] JoinOptions join_options(const std::string& job) const;
  /// Returns the commands with which rank 0 starts the other processes. `place`: rank 0's place, with the address of
  /// its rendezvous.
  [[nodiscard]] std::vector<ProcessStart> starts(const ProcessEnv& place) const;
  [[nodiscard]] std::chrono::milliseconds patience() const;

 private:
  void check_first_host() const;
  void choose_listen_address();
  void find_keys();

  JobStartOptions options_;
  std::string listen_;
  std::string host_;
  std::optional<RunKeys> run_keys_;
  std::shared_ptr<const KeySet> keys_;  // shared with sockets
};

}  // namespace maestro
