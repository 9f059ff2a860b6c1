// SPDX-License-Identifier: Apache-2.0
#include "actors/live/http_server.hpp"

#include <httplib.h>
#include <sched.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "actors/rpc/connection_acceptor.hpp"
#include "actors/rpc/rpc_socket.hpp"

namespace maestro {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t largest_head = 16 << 10;
constexpr int most_requests = 1000;  // limit for a connection

/// Lowers the priority of this thread and of all threads that it starts (HT-2).
void take_lowest_priority() {
  const sched_param none{};
  (void)::sched_setscheduler(0, SCHED_BATCH, &none);  // if neither is allowed, only the pace limits the work
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 19);
}

/// Spaces the beginnings of requests.
class Pace {
 public:
  explicit Pace(std::int64_t per_second) : gap_(std::chrono::nanoseconds(std::chrono::seconds(1)) / per_second) {}
  /// Waits for the next beginning. Returns false after close().
  [[nodiscard]] bool wait() {
    std::unique_lock lock(mutex_);
    const auto begin = std::max(Clock::now(), next_);
    next_ = begin + gap_;
    return !closing_.wait_until(lock, begin, [this] { return closed_; });
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    closing_.notify_all();
  }

 private:
  const Clock::duration gap_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable closing_;
  Clock::time_point next_;
  bool closed_ = false;
};

/// A connection as cpp-httplib reads and writes it.
class ClientStream final : public httplib::Stream {
 public:
  explicit ClientStream(RpcSocket& socket) : socket_(socket) {}

  /// Waits for a request. Returns false after the last.
  [[nodiscard]] bool wait_for_request() {
    head_ = 0;
    return begin_ < end_ || socket_.wait_for_message();
  }
  /// Returns whether the request's head is too large.
  [[nodiscard]] bool overflowed() const { return head_ > largest_head; }
  [[nodiscard]] bool is_readable() const override { return true; }
  [[nodiscard]] bool is_writable() const override { return socket_.isOpen(); }
  using httplib::Stream::write;
  ssize_t read(char* to, std::size_t size) override {
    try {
      if (begin_ == end_) {
        begin_ = 0;
        end_ = socket_.read_virt(reinterpret_cast<std::uint8_t*>(buffer_.data()), buffer_.size());
      }
    } catch (const std::exception&) {  // silent or broken
      end_ = 0;
      return -1;
    }
    const std::size_t count = std::min(size, end_ - begin_);
    head_ += count;
    if (overflowed()) return -1;
    std::copy_n(buffer_.data() + begin_, count, to);
    begin_ += count;
    return static_cast<ssize_t>(count);
  }
  ssize_t write(const char* from, std::size_t size) override {
    try {
      socket_.write_virt(reinterpret_cast<const std::uint8_t*>(from), static_cast<std::uint32_t>(size));
      return static_cast<ssize_t>(size);
    } catch (const std::exception&) {
      return -1;
    }
  }
  void get_remote_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  void get_local_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  [[nodiscard]] socket_t socket() const override { return INVALID_SOCKET; }  // cpp-httplib must read only by this class

 private:
  RpcSocket& socket_;
  std::array<char, 4096> buffer_{};
  std::size_t begin_ = 0;  // begin of the unread bytes
  std::size_t end_ = 0;
  std::size_t head_ = 0;  // bytes of this request so far
};

HttpRequest request_of(const httplib::Request& read) {
  HttpRequest request;
  request.path = read.path;
  for (const auto& [name, value] : read.params) request.parameters.emplace(name, value);
  request.host = read.get_header_value("Host");
  request.authorization = read.get_header_value("Authorization");
  return request;
}

/// Serves a client on its thread.
class Conversation final : public httplib::Server {
 public:
  Conversation(const HttpServerOptions& options, Visitor& client) : options_(options), client_(client) {
    for (const auto& [name, value] : options.headers) headers_.emplace(name, value);
    set_default_headers(headers_);
    set_pre_routing_handler([this](const httplib::Request& read, httplib::Response& answer) {
      respond(read, answer);
      return HandlerResponse::Handled;
    });
  }

  /// Serves requests until the client ends. `crowded` returns whether others wait for the slot.
  void serve(Pace& pace, const std::function<bool()>& crowded) {
    RpcSocket& socket = *client_.stream();
    ClientStream stream(socket);
    for (int at = 1; at <= most_requests && stream.wait_for_request() && pace.wait(); ++at) {
      ends_ = at == most_requests || crowded();
      bool closed = false;
      const bool answered = process_request(stream, ends_, closed, [this](httplib::Request& read) { prepare(read); });
      if (!answered && stream.overflowed()) {
        stream.write("HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
      }
      if (!answered || closed || ends_) break;
    }
    socket.hear_out();
  }

 private:
  /// Removes headers that would cost work, and ends the connection after a request with a body.
  void prepare(httplib::Request& read) {
    for (const char* name : {"Accept-Encoding", "Expect", "Range"}) read.headers.erase(name);
    read.ranges.clear();
    const bool body = read.has_header("Content-Length") || read.has_header("Transfer-Encoding");
    if (!body && !ends_ && (read.method == "GET" || read.method == "HEAD")) return;
    end_behind(read);
  }
  void end_behind(httplib::Request& read) {
    ends_ = true;
    read.headers.erase("Connection");
    read.set_header("Connection", "close");
  }
  void respond(const httplib::Request& read, httplib::Response& answer) {
    if (read.method != "GET" && read.method != "HEAD") {
      answer.status = 405;
      answer.set_header("Allow", "GET, HEAD");
      return answer.set_content(read.method + " is not allowed; use GET or HEAD\n", "text/plain");
    }
    HttpAnswer made;
    try {
      made = options_.answer(request_of(read));
    } catch (const std::exception& problem) {
      made.status = 503;
      made.body = std::make_shared<const std::string>(std::string(problem.what()) + '\n');
    }
    if (made.stranger) {
      ends_ = true;
      answer.set_header("WWW-Authenticate", "Bearer");
    } else {
      client_.admit();
    }
    answer.status = made.status;
    if (made.body) answer.set_content(*made.body, made.content_type);
  }

  const HttpServerOptions& options_;
  Visitor& client_;
  httplib::Headers headers_;
  bool ends_ = false;  // the connection ends after this request
};

}  // namespace

struct HttpServer::State {
  explicit State(HttpServerOptions given) : options(std::move(given)), pace(options.most_per_second) {
    AcceptorOptions accepting;
    accepting.address = options.address;
    accepting.most_clients = options.most_clients;
    accepting.most_strangers = options.most_clients;
    accepting.patience = std::chrono::seconds(10);
    std::exception_ptr failure;
    std::thread([&] {
      take_lowest_priority();  // the acceptor's threads inherit it
      try {
        acceptor = std::make_unique<ConnectionAcceptor>(accepting, [this](Visitor& client) { serve(client); });
      } catch (...) {
        failure = std::current_exception();
      }
    }).join();
    if (failure) std::rethrow_exception(failure);
  }
  void serve(Visitor& client) {
    ++serving;
    Conversation(options, client).serve(pace, [this] { return serving > options.most_clients / 2; });
    --serving;
  }

  HttpServerOptions options;
  Pace pace;
  std::atomic<std::size_t> serving = 0;
  std::unique_ptr<ConnectionAcceptor> acceptor;  // last: its threads use all above
};

HttpServer::HttpServer(HttpServerOptions options) : state_(std::make_unique<State>(std::move(options))) {}

HttpServer::~HttpServer() {
  stop();
}

std::string HttpServer::address() const {
  return state_->acceptor->address();
}

void HttpServer::stop() {
  state_->pace.close();
  state_->acceptor->stop();
}

}  // namespace maestro
