// SPDX-License-Identifier: Apache-2.0
// How the processes of a job find rank 0, and each other, before anything is built.
//
// RV-1: join() and wait_all() return only when all processes of the job are present and agree (GA-1). Otherwise every
//       process that has come is told the same line: why the job cannot begin.
// RV-2: the first reason why a job cannot begin is the one that is told: a process that does not fit, one that has come
//       and gone, one that reports a reason of its own, patience that is over.
// RV-3: a stranger, without a certificate of the job or without its token, is refused and noted, and ends nothing.
// RV-4: nothing waits for ever: joiners for rank 0 as long as their patience, rank 0 for them as long as its own, and
//       stop() for those who are being told a second.
// RV-5: a process that has joined and is silent for `silence`, as one that was stopped, ends the start, and so does a
//       rank 0 that is silent for so long.
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

/// What rank 0 tells those who may begin.
struct Welcome {
  std::uint32_t epoch = 0;
  std::string caf_host;
  std::uint16_t caf_port = 0;
  std::string root_host_name;
  std::string secret;       ///< for the connections that follow: who was not welcomed does not know it
  std::string shared_file;  ///< in the output folder, for hosts to see whether they share it; may be empty
};

struct RendezvousOptions {
  std::string address;                 ///< "host:port" with an IPv4 address, port 0: any free one; or "unix:/path"
  std::shared_ptr<const KeySet> keys;  ///< TLS with mutual certificates, shared with the sockets; null: plain
  JoinRequest own;                     ///< of rank 0
  std::vector<std::uint32_t> hosts;    ///< by rank
  Welcome welcome;
  std::chrono::milliseconds silence{4000};       ///< RV-5
  std::function<void(const std::string&)> note;  ///< a line about who was refused; called by any thread; may be empty
};

/// Rank 0's side. All functions are thread-safe.
class RendezvousServer {
 public:
  /// Listens at once. Throws JobError: busy port, bad address, unusable keys.
  explicit RendezvousServer(RendezvousOptions options);
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  /// With the port that was chosen.
  [[nodiscard]] std::string address() const;
  /// Who came, by rank, rank 0 among them.
  [[nodiscard]] std::vector<JoinRequest> present() const;
  /// "processes 2 and 3 (host 1)"; empty when all came.
  [[nodiscard]] std::string missing_text() const;
  /// Blocks until all are present, and calls `look`, if there is one, four times a second. Throws JobError: why the job
  /// cannot begin; all other processes get the same reason.
  void wait_all(std::chrono::milliseconds patience, const std::function<void()>& look = {});
  /// Tells everybody who waits, or joins later, that the job cannot begin. No effect after the first reason, or when
  /// all are present.
  void fail(const std::string& reason, ErrorCode code = ErrorCode::invalid_argument);
  /// The job cannot begin: tells all, those who come within the patience included, and listens no more.
  void refuse_all(const std::string& reason, std::chrono::milliseconds patience);
  /// Sees that those who wait are told, for a second at most, and listens no more. Idempotent.
  void stop();

 private:
  void stop_after(std::chrono::milliseconds patience);

  struct State;
  std::unique_ptr<State> state_;
  std::unique_ptr<RpcServer> door_;  // goes first: its threads use the state
};

struct JoinOptions {
  std::string host;  ///< of rank 0; or "unix:/path", its local socket
  std::uint16_t port = 0;
  std::shared_ptr<const KeySet> keys;  ///< as rank 0 has them; null: plain
  JoinRequest request;
  std::chrono::milliseconds patience{60000};  ///< to find rank 0; what comes then takes as long as rank 0 waits
  std::chrono::milliseconds silence{4000};    ///< RV-5
  std::function<bool()> cancelled;            ///< asked now and then, by this thread; may be empty
};

/// Every other rank's side: blocks until all processes are present. Throws JobError of one line: rank 0's name cannot
/// be resolved (at once), nobody answers there (with how long it was tried), a certificate was refused and why, rank 0
/// refused this process, the job cannot begin (`cancelled`: all others are told the same line), rank 0 has ended.
[[nodiscard]] Welcome join(const JoinOptions& options);

/// Joins only to say why the job cannot begin: an error that this process alone sees, before it could join. All others
/// are told `reason`. Gives up after `options.patience`, and never throws: it is called where another error is
/// reported.
void join_to_withdraw(const JoinOptions& options, const std::string& reason) noexcept;

}  // namespace maestro
