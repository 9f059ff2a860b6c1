// SPDX-License-Identifier: Apache-2.0
#include "actors/rpc/rpc_server.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <condition_variable>
#include <fstream>
#include <mutex>
#include <thread>

#include "actors/rpc/rpc_client.hpp"
#include "actors/rpc/socket_address.hpp"
#include "echo_processor.hpp"
#include "runtime/core/result.hpp"
#include "test_keys.hpp"
#include "tests/job/job_error.hpp"

namespace maestro {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class RpcServerTest : public testing::Test {
 protected:
  RpcServerTest() {
    std::string pattern = std::filesystem::temp_directory_path() / "maestro server XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~RpcServerTest() override { std::filesystem::remove_all(folder_); }

  AcceptorOptions server_at(const std::string& address) {
    AcceptorOptions options;
    options.address = address;
    options.refused = [this](const std::string& peer, const std::string& reason) {
      const std::lock_guard lock(mutex_);
      refusals_.push_back(peer + ": " + reason);
      refusal_.notify_all();
    };
    return options;
  }
  static ConnectionOptions to(const RpcServer& server, std::shared_ptr<const KeySet> keys = nullptr) {
    ConnectionOptions options;
    options.address = server.address();
    options.service = "echo service";
    options.keys = std::move(keys);
    return options;
  }
  /// Waits for the n-th refusal and returns it.
  std::string refusal(std::size_t n = 0) {
    std::unique_lock lock(mutex_);
    return refusal_.wait_for(lock, 10s, [&] { return refusals_.size() > n; }) ? refusals_[n] : "none";
  }
  static FileDescriptor raw(const RpcServer& server) {
    return connect_to(parse_socket_address(server.address()), "echo service", 5s);
  }
  /// Returns whether the server closes the connection within ten seconds.
  static bool ended(const FileDescriptor& socket) {
    timeval limit{.tv_sec = 10, .tv_usec = 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::fcntl(socket.get(), F_SETFL, 0);
    char byte = 0;
    while (true) {
      const auto got = ::recv(socket.get(), &byte, 1, 0);
      if (got <= 0) return got == 0 || errno == ECONNRESET;
    }
  }
  static void send_bytes(const FileDescriptor& socket, const std::string& bytes) {
    ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  std::filesystem::path folder_;
  std::mutex mutex_;
  std::condition_variable refusal_;
  std::vector<std::string> refusals_;
};

TEST_F(RpcServerTest, answers_over_tcp_at_a_port_that_it_chose) {
  RpcServer server(server_at("127.0.0.1:0"), echo_processor("<"));
  EXPECT_THAT(server.address(), testing::MatchesRegex("127\\.0\\.0\\.1:[1-9][0-9]*"));
  RpcClient connection(to(server));
  EXPECT_EQ(echo(connection, "hallo"), "<hallo");
  EXPECT_EQ(echo(connection, "again"), "<again");
}

TEST_F(RpcServerTest, one_connection_carries_more_than_the_largest_message_in_all) {
  AcceptorOptions options = server_at("127.0.0.1:0");
  options.largest_message = 4096;
  RpcServer server(options, echo_processor(""));
  RpcClient connection(to(server));
  const std::string text(3000, 'x');
  for (int i = 0; i < 10; ++i) ASSERT_EQ(echo(connection, text), text);
}

TEST_F(RpcServerTest, a_local_socket_is_its_users_alone_and_goes_with_the_door) {
  const auto path = folder_ / "run" / "1.sock";
  {
    RpcServer server(server_at("unix:" + path.string()), echo_processor(""));
    struct stat there {};
    ASSERT_EQ(::stat(path.c_str(), &there), 0);
    EXPECT_EQ(there.st_mode & 0777, 0600U);
    ASSERT_EQ(::stat(path.parent_path().c_str(), &there), 0);
    EXPECT_EQ(there.st_mode & 0777, 0700U);
    RpcClient connection(to(server));
    EXPECT_EQ(echo(connection, "hallo"), "hallo");
    EXPECT_THAT(job_error_of([&] { RpcServer(server_at("unix:" + path.string()), echo_processor("")); }),
                HasSubstr("another process listens there"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(RpcServerTest, a_socket_that_a_dead_process_left_is_replaced_and_a_file_is_not) {
  const auto path = folder_ / "left.sock";
  SocketAddress address = parse_socket_address("unix:" + path.string());
  listen_at(address).reset();
  ASSERT_TRUE(std::filesystem::exists(path));
  RpcServer server(server_at(address.text()), echo_processor(""));
  RpcClient connection(to(server));
  EXPECT_EQ(echo(connection, "x"), "x");

  std::ofstream(folder_ / "file") << "precious";
  EXPECT_THAT(job_error_of([&] { RpcServer(server_at("unix:" + (folder_ / "file").string()), echo_processor("")); }),
              HasSubstr("is not a socket"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "file"));
}

TEST_F(RpcServerTest, says_in_one_line_what_is_wrong_with_an_address) {
  const auto refused = [&](const std::string& address) {
    return job_error_of([&] { RpcServer(server_at(address), echo_processor("")); });
  };
  EXPECT_THAT(refused("nowhere"), HasSubstr("the port is missing"));
  EXPECT_THAT(refused("a:70000"), HasSubstr("0 to 65535"));
  EXPECT_THAT(refused("unix:"), HasSubstr("path is missing"));
  EXPECT_THAT(refused("unix:/" + std::string(200, 'x')), HasSubstr("at most 107 bytes"));
  EXPECT_THAT(refused("192.0.2.1:0"), HasSubstr("not an address of this machine"));
  EXPECT_THAT(refused("name.invalid:0"), HasSubstr("cannot be resolved"));
  RpcServer server(server_at("127.0.0.1:0"), echo_processor(""));
  EXPECT_THAT(refused(server.address()), HasSubstr("the port is busy"));
}

TEST_F(RpcServerTest, a_connection_says_in_one_line_why_there_is_none) {
  const auto refused = [](const std::string& address) {
    return job_error_of([&] {
      ConnectionOptions options;
      options.address = address;
      options.service = "echo service";
      RpcClient connection(options);
    });
  };
  std::string address;
  { address = RpcServer(server_at("127.0.0.1:0"), echo_processor("")).address(); }
  EXPECT_EQ(refused(address), "no echo service at " + address + ": no process listens there");
  EXPECT_THAT(refused("unix:" + (folder_ / "none").string()), HasSubstr("there is no such socket"));
  EXPECT_THAT(refused("name.invalid:7"), HasSubstr("cannot be resolved"));
}

TEST_F(RpcServerTest, closes_further_clients_at_once_and_takes_new_ones_when_old_ones_go) {
  AcceptorOptions options = server_at("127.0.0.1:0");
  options.most_clients = 2;
  RpcServer server(options, echo_processor(""));
  RpcClient first(to(server));
  EXPECT_EQ(echo(first, "1"), "1");
  {
    RpcClient second(to(server));
    EXPECT_EQ(echo(second, "2"), "2");
    EXPECT_TRUE(ended(raw(server)));
    EXPECT_THAT(refusal(), HasSubstr("there are 2 clients already"));
  }
  std::string answer = "none";
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  // Until the server sees the second client leave.
  while (answer != "3" && std::chrono::steady_clock::now() < deadline) {
    answer = "none";
    try {
      RpcClient third(to(server));
      answer = echo(third, "3");
    } catch (const JobError&) {
    }
  }
  EXPECT_EQ(answer, "3");
}

TEST_F(RpcServerTest, strangers_take_no_slot_of_a_client_and_the_oldest_makes_room) {  // CN-1
  AcceptorOptions options = server_at("127.0.0.1:0");
  options.most_clients = 2;
  options.most_strangers = 3;
  options.stranger_patience = 1h;
  RpcServer server(options, echo_processor(""));
  RpcClient first(to(server));
  EXPECT_EQ(echo(first, "1"), "1");
  std::vector<FileDescriptor> idle;
  for (int at = 0; at < 40; ++at) idle.push_back(raw(server));
  RpcClient second(to(server));
  EXPECT_EQ(echo(second, "2"), "2");
  EXPECT_EQ(echo(first, "1"), "1");
  EXPECT_TRUE(ended(idle.front()));
}

TEST_F(RpcServerTest, a_stranger_has_a_patience_of_its_own) {  // CN-2
  AcceptorOptions options = server_at("127.0.0.1:0");
  options.patience = 1h;
  options.stranger_patience = 100ms;
  RpcServer server(options, echo_processor(""));
  EXPECT_TRUE(ended(raw(server)));
}

TEST_F(RpcServerTest, fails_in_one_line_or_serves_when_descriptors_are_few) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  int failed = 0;
  for (int more = 0; more < 6; ++more) {
    const int next = ::dup(0);
    ::close(next);
    rlimit few = before;
    few.rlim_cur = static_cast<rlim_t>(next + more);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    const std::string problem =
        job_error_of([&] { RpcServer(server_at("unix:" + (folder_ / "few").string()), echo_processor("")); });
    ::setrlimit(RLIMIT_NOFILE, &before);
    if (problem == "(no error)") continue;
    ++failed;
    EXPECT_THAT(problem, HasSubstr("Too many open files"));
  }
  EXPECT_GE(failed, 2) << "an event and a socket";
}

TEST_F(RpcServerTest, lets_go_of_clients_that_are_silent_or_dribble) {  // DO-1, SS-1
  AcceptorOptions options = server_at("127.0.0.1:0");
  options.patience = 100ms;
  RpcServer server(options, echo_processor(""));
  EXPECT_TRUE(ended(raw(server)));
  const auto refused = [this] {
    const std::lock_guard lock(mutex_);
    return !refusals_.empty();
  };
  // On a busy machine, the server may end a connection before its first bytes are sent.
  for (int attempt = 0; attempt < 100 && !refused(); ++attempt) {
    const FileDescriptor dribbling = raw(server);
    send_bytes(dribbling, std::string("\0\0\1\0x", 5));
    EXPECT_TRUE(ended(dribbling));
  }
  EXPECT_THAT(refusal(), HasSubstr("silent for 100 ms in mid-message"));
}

TEST_F(RpcServerTest, refuses_frames_that_are_too_large_and_what_is_no_message) {  // DO-1
  RpcServer server(server_at("127.0.0.1:0"), echo_processor(""));
  std::size_t n = 0;
  for (const std::string& bytes :
       {std::string("\x7f\xff\xff\xff", 4), std::string("\xff\xff\xff\xff", 4), std::string("\0\0\0\4abcd", 8),
        std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\0\0\0\xc\x80\1\0\1\x7f\xff\xff\xff\0\0\0\0", 16)}) {
    const FileDescriptor client = raw(server);
    send_bytes(client, bytes);
    EXPECT_TRUE(ended(client)) << n;
    EXPECT_THAT(refusal(n), HasSubstr("127.0.0.1:")) << n;
    ++n;
  }
  RpcClient good(to(server));
  EXPECT_EQ(echo(good, "still here"), "still here");
}

TEST_F(RpcServerTest, stops_at_once_with_clients_that_hang) {  // CN-3, DO-2, SS-2
  AcceptorOptions options = server_at("127.0.0.1:0");
  options.patience = 1h;
  RpcServer server(options, echo_processor(""));
  const FileDescriptor silent = raw(server);
  const FileDescriptor dribbling = raw(server);
  send_bytes(dribbling, std::string("\0\0\1\0x", 5));
  RpcClient idle(to(server));
  EXPECT_EQ(echo(idle, "x"), "x");
  const auto start = std::chrono::steady_clock::now();
  server.stop();
  server.stop();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 60s);
  EXPECT_TRUE(ended(silent));
  EXPECT_THAT(job_error_of([&] { echo(idle, "x"); }), HasSubstr("it ended the connection"));
}

TEST_F(RpcServerTest, gives_each_client_a_processor_that_knows_its_name) {
  RpcServer server(server_at("unix:" + (folder_ / "s").string()),
                   [](Visitor& visitor) { return echo_processor(visitor.name() + " says "); });
  RpcClient connection(to(server));
  EXPECT_EQ(echo(connection, "hallo"), "process " + std::to_string(::getpid()) + " says hallo");
}

TEST_F(RpcServerTest, speaks_tls_with_peers_of_the_same_authority) {
  const TestAuthority job(folder_ / "job");
  AcceptorOptions options = server_at("127.0.0.1:0");
  options.keys = job.keys("server");
  RpcServer server(options, echo_processor(""));
  RpcClient connection(to(server, job.keys("client")));
  const std::string large(100'000, 'x');
  EXPECT_EQ(echo(connection, large), large);
}

TEST_F(RpcServerTest, refuses_and_names_peers_without_a_valid_certificate_at_both_ends) {  // DO-3
  const TestAuthority job(folder_ / "job");
  const TestAuthority other(folder_ / "other");
  AcceptorOptions options = server_at("127.0.0.1:0");
  options.keys = job.keys("server");
  RpcServer server(options, echo_processor(""));
  const auto refused = [&](const KeySet& shown) {
    KeySet keys = shown;
    keys.authority = job.keys("any")->authority;  // so that the client trusts the server
    return job_error_of([&] {
      RpcClient connection(to(server, std::make_shared<KeySet>(keys)));
      echo(connection, "x");
    });
  };
  EXPECT_THAT(refused(*other.keys("stranger")), HasSubstr("it refused our certificate: unknown CA"));
  EXPECT_THAT(refusal(0), HasSubstr("its certificate was refused: unable to get local issuer certificate"));
  EXPECT_THAT(job_error_of([&] { RpcClient connection(to(server, other.keys("stranger"))); }),
              HasSubstr("its certificate was refused"));
  EXPECT_THAT(refusal(1), HasSubstr("unknown CA"));
  EXPECT_THAT(refused(*job.keys("late", -60s)), HasSubstr("late.pem has expired"));
}

TEST_F(RpcServerTest, names_peers_that_speak_no_tls) {
  const TestAuthority job(folder_ / "job");
  AcceptorOptions options = server_at("127.0.0.1:0");
  options.keys = job.keys("server");
  RpcServer server(options, echo_processor(""));
  EXPECT_THAT(job_error_of([&] {
                RpcClient plain(to(server));
                echo(plain, "x");
              }),
              HasSubstr("does it want TLS"));
  EXPECT_THAT(refusal(0), HasSubstr("it does not use TLS"));

  RpcServer plain_door(server_at("127.0.0.1:0"), echo_processor(""));
  EXPECT_NE(job_error_of([&] { RpcClient connection(to(plain_door, job.keys("client"))); }), "(no error)");
}

TEST_F(RpcServerTest, a_client_silent_in_the_tls_handshake_is_let_go) {
  const TestAuthority job(folder_ / "job");
  AcceptorOptions options = server_at("127.0.0.1:0");
  options.keys = job.keys("server");
  options.patience = 100ms;
  RpcServer server(options, echo_processor(""));
  EXPECT_TRUE(ended(raw(server)));
  EXPECT_THAT(refusal(0), HasSubstr("silent for 100 ms in the TLS handshake"));
}

}  // namespace
}  // namespace maestro
