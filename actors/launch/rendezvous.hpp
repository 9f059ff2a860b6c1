// SPDX-License-Identifier: Apache-2.0
// Lets the processes of a job find rank 0, and each other, before anything is built.
//
// RV-1 (all or none): join() and wait_all() return only after all processes of the job are present and agree (GA-1).
//       Otherwise every process that joined receives the same line: the reason why the job cannot begin.
// RV-2 (first reason): the first reason why a job cannot begin is reported: a process that does not fit, a process that
//       joined and ended, a process that reports a reason, or a timeout.
// RV-3 (strangers): a stranger, without a certificate of the job or without its token, is refused and logged; the start
//       continues.
// RV-4 (bounded waits): joiners wait for rank 0 and rank 0 for joiners as long as their patience, and stop() waits up
//       to a second for pending refusals to be delivered.
// RV-5 (silence): a joined process that is silent for `silence`, for example stopped, ends the start; so does a silent
//       rank 0.
// RV-6 (no room): if rank 0 lacks a thread or memory for a process of its host, the start ends with that reason.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/launch/join_check.hpp"
#include "actors/rpc/key_set.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

class RpcServer;

/// Rank 0's answer to the processes of a job that begins.
struct JoinAccepted {
  std::uint32_t epoch = 0;
  std::string caf_host;
  std::uint16_t caf_port = 0;
  std::string root_host_name;
  std::string secret;         ///< secret for later connections; only admitted processes receive it
  std::string shared_file;    ///< file in the output folder that tests whether hosts share the folder; may be empty
  std::string resume;         ///< RunOptions::resume of rank 0, for processes of an earlier start of the run
  bool shared_memory = true;  ///< whether transport.provider = "auto" may choose shm
};

struct RendezvousOptions {
  std::string address;                 ///< "host:port" with an IPv4 address, port 0: any free port; or "unix:/path"
  std::shared_ptr<const KeySet> keys;  ///< TLS with mutual certificates, shared with the sockets; null: plain
  JoinRequest own;                     ///< request of rank 0
  std::vector<std::uint32_t> hosts;    ///< hosts by rank
  std::vector<JoinRequest> present;    ///< processes that run already
  JoinAccepted accepted;
  std::chrono::milliseconds silence{4000};  ///< RV-5
  /// Time for late processes to connect and receive the reason, after a mismatched process has ended the start: a
  /// loaded host starts some processes late.
  std::chrono::milliseconds farewell_to_late_ones{15000};
  std::function<void(const std::string&)>
      note;  ///< receives a line per refused peer; called by any thread; may be empty
};

/// The rendezvous in rank 0. All functions are thread-safe.
class RendezvousServer {
 public:
  /// Listens at once. Throws JobError for a busy port, a bad address or unusable keys.
  explicit RendezvousServer(RendezvousOptions options);
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  /// Returns the address with the chosen port.
  [[nodiscard]] std::string address() const;
  /// Returns the joined processes by rank, with rank 0.
  [[nodiscard]] std::vector<JoinRequest> present() const;
  /// Returns "processes 2 and 3 (host 1)"; empty if all have joined.
  [[nodiscard]] std::string missing_text() const;
  /// Blocks until all are present; calls `look`, if set, four times a second. Throws JobError with the reason why the
  /// job cannot begin, which all other processes also receive.
  void wait_all(std::chrono::milliseconds patience, const std::function<void()>& look = {});
  /// Answers all waiting and later processes that the job cannot begin. Returns false, without effect, if there is a
  /// reason already or all are present.
  bool fail(const std::string& reason, ErrorCode code = ErrorCode::invalid_argument);
  /// Answers all processes that arrive within `patience` that the job cannot begin, then stops listening.
  void refuse_all(const std::string& reason, std::chrono::milliseconds patience);
  /// Delivers pending answers, for up to a second, then stops listening. Idempotent.
  void stop();

 private:
  void stop_after(std::chrono::milliseconds patience);

  struct State;
  std::unique_ptr<State> state_;
  std::unique_ptr<RpcServer> server_;  // destroyed first: its threads use the state
};

struct JoinOptions {
  std::string host;  ///< host of rank 0, or "unix:/path", its local socket
  std::uint16_t port = 0;
  std::shared_ptr<const KeySet> keys;  ///< same set as rank 0; null: plain
  JoinRequest request;
  std::chrono::milliseconds patience{60000};  ///< time to find rank 0; then rank 0's patience bounds the wait
  std::chrono::milliseconds silence{4000};    ///< RV-5
  std::function<bool()> cancelled;            ///< polled by this thread; may be empty
};

/// Joins rank 0 and blocks until all processes are present. Throws JobError, a single line: rank 0's name cannot be
/// resolved (at once), no listener (with the time tried), a certificate was refused and why, rank 0 refused this
/// process, the job cannot begin (`cancelled`: all others receive the same line), or rank 0 has ended.
[[nodiscard]] JoinAccepted join(const JoinOptions& options);

/// Reports to rank 0 that the job cannot begin, because of an error in this process before it could join. All others
/// receive `reason`. Stops trying after `options.patience`. Never throws: it is called while another error is reported.
void join_to_withdraw(const JoinOptions& options, const std::string& reason) noexcept;

}  // namespace maestro
