// SPDX-License-Identifier: Apache-2.0
#include "actors/served/served_connection.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <latch>
#include <limits>
#include <thread>

#include "actors/rpc/socket_address.hpp"
#include "linear_server.hpp"
#include "runtime/core/result.hpp"
#include "tests/job/job_error.hpp"

namespace maestro::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

void expect_line(const std::string& found, const std::string& wanted) {
  EXPECT_THAT(found, HasSubstr(wanted));
  EXPECT_THAT(found, StartsWith("the served module at 127.0.0.1:"));
  EXPECT_THAT(found, Not(HasSubstr("\n")));
  EXPECT_LT(found.size(), 700U);
}

/// A server whose results are changed before they are sent.
struct Changed final : LinearSession {
  std::function<void(served::PassResult&)> change_pass;
  std::function<void(std::vector<served::Tensor>&)> change_gradients;
  std::function<void(std::string&)> change_values;
  Changed() : LinearSession(true) {}
  void forward(served::PassResult& result, const served::MicroBatch& batch) override {
    LinearSession::forward(result, batch);
    if (change_pass) change_pass(result);
  }
  void backward(std::vector<served::Tensor>& input_gradients, std::int64_t number,
                const std::vector<served::Tensor>& gradients) override {
    LinearSession::backward(input_gradients, number, gradients);
    if (change_gradients) change_gradients(input_gradients);
  }
  void gradients(std::string& gradients, const std::string& parameter, std::int64_t first,
                 std::int64_t count) override {
    LinearSession::gradients(gradients, parameter, first, count);
    if (change_values) change_values(gradients);
  }
};

/// A connection to a server, and tensors with two rows.
struct Client {
  explicit Client(const std::string& address, std::chrono::milliseconds patience = 20s)
      : connection(ServedAddress{address, nullptr, patience}) {}
  std::vector<MetricSum> forward() {
    const ServedPass pass{1, true, true, {0, 1}, {1, 1}, {0, 0}, {0, 0}, 1.0};
    const ServedTensor input{"x", {x.data(), DType::f32, {2, 3}}};
    const ServedTensor output{"y", {y.data(), DType::f32, {2, 2}}};
    return connection.forward(pass, {&input, 1}, {&output, 1});
  }
  void backward() {
    const ServedTensor given{"y", {y.data(), DType::f32, {2, 2}}};
    const ServedTensor wanted{"x", {of_x.data(), DType::f32, {2, 3}}};
    connection.backward(1, {&given, 1}, {&wanted, 1});
  }
  ServedConnection connection;
  std::vector<float> x{1, 2, 3, -1, 0.5F, 4};
  std::vector<float> y = std::vector<float>(4, -7);
  std::vector<float> of_x = std::vector<float>(6, -7);
};

TEST(ServedConnection, carries_tensors_and_parameters) {
  const LinearServer server("127.0.0.1:0", [] { return std::make_shared<LinearSession>(true); });
  Client client(server.address());
  EXPECT_EQ(client.connection.open({"s", 0, true, true}).parameters.size(), 1U);
  EXPECT_TRUE(client.forward().empty());
  EXPECT_EQ(client.y, (std::vector<float>{3, 0.375F, 3.375F, 2.375F}));
  client.backward();
  std::vector<float> gradient(6);
  client.connection.read_gradients("weight", gradient);
  EXPECT_EQ(gradient[0], 3 * 1 + 3.375F * -1);
  std::vector<float> values(6);
  client.connection.read_initial_values("weight", values);
  EXPECT_EQ(values, linear_values());
}

TEST(ServedConnection, refuses_other_tensors_than_expected_and_writes_nothing) {  // VN-2
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const std::pair<std::function<void(served::PassResult&)>, const char*> changes[] = {
      {[](auto& r) { r.outputs.clear(); }, "it sent 0 outputs, expected 1"},
      {[](auto& r) { r.outputs.resize(50, r.outputs[0]); }, "it sent 50 outputs, expected 1"},
      {[](auto& r) { r.outputs[0].port = "z"; }, "output 'y' is missing"},
      {[](auto& r) { r.outputs[0].rows = 3; }, "output 'y' is fp32 (3, 2), expected fp32 (2, 2)"},
      {[](auto& r) { r.outputs[0].columns = 1LL << 62; }, "expected fp32 (2, 2)"},
      {[](auto& r) { r.outputs[0].rows = -2; }, "output 'y' is fp32 (-2, 2), expected fp32 (2, 2)"},
      {[](auto& r) { r.outputs[0].dtype = served::DataType::BF16; }, "output 'y' is bf16 (2, 2), expected fp32 (2, 2)"},
      {[](auto& r) { r.outputs[0].dtype = 9; }, "is an unknown dtype (2, 2)"},
      {[](auto& r) { r.outputs[0].data.pop_back(); }, "output 'y' has 15 bytes, expected 16"},
      {[](auto& r) { r.outputs[0].data.assign(1U << 20, 'x'); }, "output 'y' has 1048576 bytes, expected 16"},
      {[](auto& r) { r.metrics.resize(1000); }, "it sent 1000 metrics"},
      {[](auto& r) { r.metrics.resize(1); }, "metric \"\" with weight 0 is invalid"},
      {[](auto& r) { r.metrics.resize(1), r.metrics[0].name = "a\nb"; }, "metric \"a\\nb\""},
      {[](auto& r) { r.metrics.resize(1), r.metrics[0].name = "a", r.metrics[0].weight = nan; }, "metric \"a\""},
  };
  for (const auto& [change, line] : changes) {
    const LinearServer server("127.0.0.1:0", [change = change] {
      auto made = std::make_shared<Changed>();
      made->change_pass = change;
      return made;
    });
    Client client(server.address());
    expect_line(job_error_of([&] { (void)client.forward(); }), line);
    EXPECT_EQ(client.y, std::vector<float>(4, -7));
  }
}

TEST(ServedConnection, refuses_other_gradients_than_expected) {  // VN-2
  const LinearServer server("127.0.0.1:0", [] {
    auto made = std::make_shared<Changed>();
    made->change_gradients = [](auto& gradients) { gradients[0].columns = 7; };
    made->change_values = [](std::string& values) { values += "four"; };
    return made;
  });
  Client client(server.address());
  (void)client.forward();
  expect_line(job_error_of([&] { client.backward(); }), "input gradient 'x' is fp32 (2, 7), expected fp32 (2, 3)");
  EXPECT_EQ(client.of_x, std::vector<float>(6, -7));
  std::vector<float> gradient(6, -7);
  expect_line(job_error_of([&] { client.connection.read_gradients("weight", gradient); }),
              "the gradient of parameter 'weight' has 28 bytes, expected 24");
  EXPECT_EQ(gradient, std::vector<float>(6, -7));
}

TEST(ServedConnection, passes_the_servers_reason_on_in_a_line) {
  const LinearServer server("127.0.0.1:0", [] {
    auto made = std::make_shared<Changed>();
    made->change_pass = [](auto&) {
      served::Refused refused;
      refused.reason = "out of\nmemory" + std::string(5000, '!');
      throw refused;
    };
    return made;
  });
  Client client(server.address());
  expect_line(job_error_of([&] { (void)client.forward(); }), "it refuses: out of\\nmemory!!!");
}

/// Answers a client's first message with given bytes, then closes the connection or stays silent.
class RawServer {
 public:
  RawServer(std::string bytes, bool stays) : listening_(listen_at(address_)) {
    thread_ = std::thread([this, bytes = std::move(bytes), stays] {
      pollfd waited{listening_.get(), POLLIN, 0};
      ::poll(&waited, 1, -1);
      const FileDescriptor client(::accept(listening_.get(), nullptr, nullptr));
      char buffer[4096];
      (void)::recv(client.get(), buffer, sizeof buffer, 0);
      (void)::send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (stays) end_.wait();
    });
  }
  ~RawServer() {
    end_.count_down();
    thread_.join();
  }
  [[nodiscard]] std::string address() const { return address_.text(); }

 private:
  SocketAddress address_ = parse_socket_address("127.0.0.1:0");
  FileDescriptor listening_;
  std::latch end_{1};
  std::thread thread_;
};

TEST(ServedConnection, refuses_bytes_that_are_no_message) {  // VN-2
  using namespace std::string_literals;
  const std::pair<std::string, const char*> answers[] = {
      {"HTTP/1.1 400 Bad Request\r\n\r\n", "its answer is not a message of this protocol"},
      {"\xff\xff\xff\xff", "Frame size has negative value"},
      {"\x7f\xff\xff\xff", "its answer is not a message of this protocol"},
      {"\0\0\0\4\0\0\0\0"s, "its answer is not a message of this protocol"},
      // a list of 2^31 - 1 ports, in a frame that ends there
      {"\0\0\0\x22"s + "\x80\1\0\2\0\0\0\4open\0\0\0\0"s + "\x0c\0\0"s + "\x0f\0\1\x0c\x7f\xff\xff\xff"s +
           std::string(7, '\0'),
       "its answer is not a message of this protocol"},
      {"", "it ended the connection"},
      {"\0\0\1\0abc"s, "it ended the connection"},
  };
  for (const auto& [bytes, line] : answers) {
    const RawServer server(bytes, false);
    Client client(server.address());
    expect_line(job_error_of([&] { (void)client.connection.open({"s", 0, false, false}); }), line);
  }
}

TEST(ServedConnection, waits_for_an_answer_within_its_limit) {  // VN-1
  const RawServer server("", true);
  Client client(server.address(), 200ms);
  const auto begin = std::chrono::steady_clock::now();
  expect_line(job_error_of([&] { (void)client.connection.open({"s", 0, false, false}); }), "no answer within 1 s");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

TEST(ServedConnection, ends_a_call_when_it_is_interrupted) {  // VN-1
  const RawServer server("", true);
  Client client(server.address(), 60s);
  const auto begin = std::chrono::steady_clock::now();
  std::thread other([&] { client.connection.interrupt(); });
  expect_line(job_error_of([&] { (void)client.connection.open({"s", 0, false, false}); }), "it ended the connection");
  other.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
}

}  // namespace
}  // namespace maestro::testing
