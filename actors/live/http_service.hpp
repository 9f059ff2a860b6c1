// SPDX-License-Identifier: Apache-2.0
// Serves the run over HTTP in process 0: its live page, figures for Prometheus, probes, status and record.
//
// HS-1 (no interference): the run never waits for a client. Requests to actors are ordinary messages, at most one set
//       per `answer_age` whatever the number of clients, and stop() wakes every thread that waits for an answer.
// HS-2 (authorization): at an address that other hosts reach, a request without the run's token gets only status 401.
//       At an address that only this host reaches, a request for another host's name gets status 403.
// HS-3 (nothing leaves): an answer never makes a browser load anything from elsewhere.
#pragma once

#include <atomic>
#include <caf/actor.hpp>
#include <caf/fwd.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "actors/job/resolved_job.hpp"
#include "actors/messages/messages.hpp"
#include "actors/rpc/key_set.hpp"

namespace maestro {

struct HttpServiceOptions {
  std::string address;                 ///< text for parse_http_address()
  std::shared_ptr<const KeySet> keys;  ///< keys for an address that other hosts reach
  const ResolvedJob* job = nullptr;
  caf::actor_system* system = nullptr;
  caf::actor coordinator;
  const std::atomic<std::uint64_t>* events = nullptr;  ///< CoordinatorOptions::events
  std::function<ProcessSummary()> summary;             ///< summarizes this process; called on any thread
  std::string version;
  std::string instruction_set;
  bool keeps_record = true;
  std::chrono::milliseconds status_patience{250};  ///< longest wait for the replicas' answers
  std::chrono::milliseconds answer_age{250};       ///< largest age of a reused answer
};

class HttpService {
 public:
  /// Listens and serves. Throws JobError like HttpServer, and for an address that other hosts reach without keys.
  explicit HttpService(HttpServiceOptions options);
  ~HttpService();
  HttpService(const HttpService&) = delete;
  HttpService& operator=(const HttpService&) = delete;

  /// Returns the address with the chosen port.
  [[nodiscard]] std::string address() const;
  /// Stops serving; call before the actors end. Idempotent.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace maestro
