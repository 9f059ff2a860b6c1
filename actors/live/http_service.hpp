// SPDX-License-Identifier: Apache-2.0
// The run over HTTP, in process 0: its live page, its figures for Prometheus, probes, its status and its record.
//
// HS-1 (no interference): the run never waits for a client: requests to actors are ordinary messages, at most one set
//       of them per `answer_age` whatever the number of clients, and stop() wakes every thread that waits for an
//       answer.
// HS-2 (authorization): at an address that other hosts reach, a request without the run's token gets status 401 and
//       nothing else. At an address of this host alone, a request for another host's name gets status 403.
// HS-3 (nothing leaves): no answer makes a browser load anything from elsewhere.
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
  std::string address;                 ///< as of parse_http_address()
  std::shared_ptr<const KeySet> keys;  ///< for addresses reachable from other hosts
  const ResolvedJob* job = nullptr;
  caf::actor_system* system = nullptr;
  caf::actor coordinator;
  const std::atomic<std::uint64_t>* events = nullptr;  ///< CoordinatorOptions::events
  std::function<ProcessSummary()> summary;             ///< of this process; called on any thread
  std::string version;
  std::string instruction_set;
  bool keeps_record = true;
  std::chrono::milliseconds status_patience{250};  ///< of replicas; answers that are there cost no time
  std::chrono::milliseconds answer_age{250};       ///< an answer may be as old as this
};

class HttpService {
 public:
  /// Listens and serves. Throws JobError: as HttpServer, or an address reachable from other hosts without keys.
  explicit HttpService(HttpServiceOptions options);
  ~HttpService();
  HttpService(const HttpService&) = delete;
  HttpService& operator=(const HttpService&) = delete;

  /// Returns the address with the chosen port.
  [[nodiscard]] std::string address() const;
  /// Called before the actors end. Idempotent.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace maestro
