// SPDX-License-Identifier: Apache-2.0
// Serves short answers over HTTP/1.1 to a bounded number of clients. cpp-httplib reads requests and writes answers over
// the connections of a ConnectionAcceptor, whose slots and deadlines limit each client.
//
// HT-1 (bounded clients): a client has a slot, 16 KiB for a request's head, and a deadline for the complete request and
//       for reading the answer. A body is never read: the connection ends after the answer.
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

/// The head of a request.
struct HttpRequest {
  std::string path;
  std::map<std::string, std::string> parameters;  ///< decoded parameters of the query
  std::string host;                               ///< Host header; empty: none
  std::string authorization;                      ///< Authorization header; empty: none
};

struct HttpAnswer {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::shared_ptr<const std::string> body;  ///< null: empty
  bool stranger = false;                    ///< the client is not authorized; its connection ends
};

struct HttpServerOptions {
  std::string address;                         ///< "host:port"; port 0: any free port
  std::size_t most_clients = 128;              ///< clients with a complete request, and as many without
  std::int64_t most_per_second = 200;          ///< requests
  std::map<std::string, std::string> headers;  ///< headers of all answers
  /// Answers a GET or HEAD request, on any thread; throws std::exception for status 503 with its text.
  std::function<HttpAnswer(const HttpRequest&)> answer;
};

class HttpServer {
 public:
  /// Listens and serves. Throws JobError for a busy port, a bad address, or if no descriptor or thread is available.
  explicit HttpServer(HttpServerOptions options);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Returns the address with the chosen port.
  [[nodiscard]] std::string address() const;
  /// Stops serving. Idempotent. Not callable from `answer`.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace maestro
