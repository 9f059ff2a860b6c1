// SPDX-License-Identifier: Apache-2.0
// Serves short answers over HTTP/1.1 to a bounded number of clients. cpp-httplib reads requests and writes answers; the
// connections are those of a ConnectionAcceptor, whose slots and deadlines bound what a client can hold.
//
// HT-1 (bounded clients): a client has a slot, 16 KiB for the head of a request, and a deadline for the whole request
//       and for reading the answer. A body is never read: the connection ends behind the answer.
// HT-2 (bounded work): over all clients at most `most_per_second` requests are read in a second; further ones wait.
//       All threads have the lowest priority, so work of the run comes first.
// HT-3 (bounded stop): stop() ends in bounded time whatever clients do, if `answer` does.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace maestro {

/// A request whose head was read.
struct HttpRequest {
  std::string path;
  std::map<std::string, std::string> parameters;  ///< of the query, decoded
  std::string host;                               ///< of the header; empty: none
  std::string authorization;                      ///< likewise
};

struct HttpAnswer {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::shared_ptr<const std::string> body;  ///< null: empty
  bool stranger = false;                    ///< the client is not authorized; its connection ends
};

struct HttpServerOptions {
  std::string address;                         ///< "host:port"; port 0: any free port
  std::size_t most_clients = 128;              ///< with and without a complete request, each
  std::int64_t most_per_second = 200;          ///< requests
  std::map<std::string, std::string> headers;  ///< of all answers
  /// Answers a GET or HEAD request, on any thread; throws std::exception for status 503 with its text.
  std::function<HttpAnswer(const HttpRequest&)> answer;
};

class HttpServer {
 public:
  /// Listens and serves. Throws JobError: busy port, bad address, no descriptor or thread available.
  explicit HttpServer(HttpServerOptions options);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Returns the address with the chosen port.
  [[nodiscard]] std::string address() const;
  /// Idempotent; not from `answer`.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace maestro
