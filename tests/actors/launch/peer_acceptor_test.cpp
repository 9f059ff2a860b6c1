// SPDX-License-Identifier: Apache-2.0
#include "actors/launch/peer_acceptor.hpp"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <vector>

#include "actors/rpc/socket_address.hpp"
#include "tests/job/job_error.hpp"
#include "tests/observe/temporary_folder.hpp"

namespace maestro {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr auto plenty = 30s;

class Gate : public TemporaryFolder {
 protected:
  void open(const std::string& host, std::shared_ptr<const KeySet> keys = nullptr) {
    keys_ = {std::move(keys), std::string(64, 's')};
    host_ = host;
    gate_ = std::make_unique<PeerAcceptor>(host, 0, keys_, [this](PeerSocket) {
      const std::lock_guard lock(mutex_);
      ++admitted_;
      changed_.notify_all();
    });
  }
  [[nodiscard]] std::shared_ptr<const KeySet> keys(const char* name) const {
    make_key_set(folder_ / name, {});
    return std::make_shared<KeySet>(load_key_set(folder_ / name));
  }
  [[nodiscard]] FileDescriptor stranger() const {
    SocketAddress address;
    if (host_.starts_with("unix:")) {
      address.path = host_.substr(5);
    } else {
      address.host = host_;
      address.port = gate_->port();
    }
    return connect_to(address, "gate", 5s);
  }
  [[nodiscard]] std::string error_of_connecting(const GateKeys& keys) const {
    return job_error_of([&] { (void)connect_to_gate(host_, gate_->port(), keys, plenty); });
  }
  void expect_admitted(int count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, plenty, [&] { return admitted_ >= count; }));
    EXPECT_EQ(admitted_, count);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int admitted_ = 0;
  GateKeys keys_;
  std::string host_;
  std::unique_ptr<PeerAcceptor> gate_;  // last: its threads use all members above
};

TEST_F(Gate, hands_on_a_process_that_shows_the_secret_and_no_other) {  // PG-1, AE-3
  for (const std::string& host : {std::string("127.0.0.1"), "unix:" + (folder_ / "gate").string()}) {
    open(host);
    admitted_ = 0;
    EXPECT_THAT(error_of_connecting({nullptr, std::string(64, 'x')}), HasSubstr("it ended the connection"));
    EXPECT_EQ(error_of_connecting(keys_), "(no error)");
    expect_admitted(1);
    gate_.reset();
  }
}

TEST_F(Gate, over_tls_wants_a_certificate_of_the_job_too) {  // PG-1
  open("127.0.0.1", keys("job"));
  EXPECT_NE(error_of_connecting({keys("other"), keys_.secret}), "(no error)");
  EXPECT_EQ(error_of_connecting(keys_), "(no error)");
  expect_admitted(1);
}

TEST_F(Gate, strangers_hold_up_no_process) {  // CN-1
  for (const bool encrypted : {false, true}) {
    const std::shared_ptr<const KeySet> own = encrypted ? keys("job") : nullptr;
    bool quick = false;
    for (int attempt = 0; attempt < 4 && !quick; ++attempt) {  // other processes may take the cores
      open("127.0.0.1", own);
      admitted_ = 0;
      std::vector<FileDescriptor> idle;
      for (int at = 0; at < 300; ++at) idle.push_back(stranger());
      for (int at = 0; at < 100; ++at) {
        const FileDescriptor talker = stranger();
        (void)::send(talker.get(), "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL);
      }
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_EQ(error_of_connecting(keys_), "(no error)");
      quick = std::chrono::steady_clock::now() - begin < 4s;  // less than the time limit for a stranger
      expect_admitted(1);
      gate_.reset();
    }
    EXPECT_TRUE(quick) << "encrypted: " << encrypted;
  }
}

}  // namespace
}  // namespace maestro
