// SPDX-License-Identifier: Apache-2.0
// A replica's connection to the server of its module.
//
// VN-1 (bounded calls): a call ends within the time limit for an answer, and at once after interrupt().
// VN-2 (checked answers): a tensor with another name, dtype, shape or size than expected, a missing or additional
//       tensor, and bytes that are not a message are refused with a line that names the address; the caller's memory is
//       written only from accepted answers.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "actors/rpc/key_set.hpp"
#include "actors/served/served_module.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/tensor.hpp"
#include "sections/section.hpp"

namespace maestro {

struct ServedAddress {
  std::string address;                        ///< "unix:/path" or "host:port"
  std::shared_ptr<const KeySet> keys;         ///< TLS with mutual certificates; null: plain
  std::chrono::milliseconds patience{60000};  ///< time limit for an answer, including its computation
};

/// The replica that the connection computes for.
struct ServedSession {
  std::string section;
  std::int64_t replica = 0;
  bool trained = false;
  bool backward = false;  ///< the server may have to keep passes for backward()
};

/// A port's (rows, columns) tensor in host memory: read to be sent, or written when received.
struct ServedTensor {
  std::string port;
  Tensor tensor;
};

/// A micro-batch without its tensors.
struct ServedPass {
  std::int64_t number = 0;  ///< rising number in the session
  bool keep = false;        ///< backward() will follow
  bool training = false;    ///< training, not validation
  std::vector<std::int64_t> samples;
  std::vector<std::int64_t> tokens;   ///< number of tokens in each sample
  std::vector<std::int64_t> patches;  ///< number of patches in each sample
  double loss_scale = 0;
};

/// Used by a single thread, except interrupt(). All errors are JobErrors with a line that begins with the address;
/// after an error the connection is unusable.
class ServedConnection {
 public:
  explicit ServedConnection(const ServedAddress& at);
  ~ServedConnection();
  ServedConnection(const ServedConnection&) = delete;
  ServedConnection& operator=(const ServedConnection&) = delete;

  /// Opens the session and returns the module; the first call.
  [[nodiscard]] ServedModule open(const ServedSession& session);
  /// Runs a forward pass: writes the outputs and returns the metrics.
  [[nodiscard]] std::vector<MetricSum> forward(const ServedPass& pass, std::span<const ServedTensor> inputs,
                                               std::span<const ServedTensor> outputs);
  void backward(std::int64_t pass, std::span<const ServedTensor> output_gradients,
                std::span<const ServedTensor> input_gradients);

  /// Transfer a parameter in parts of bounded size.
  void read_initial_values(const std::string& parameter, std::span<float> values);
  void write_values(const std::string& parameter, std::span<const float> values);
  void read_gradients(const std::string& parameter, std::span<float> gradients);
  void clear_gradients();

  /// Ends the present and all later calls. Thread-safe.
  void interrupt() noexcept;

 private:
  struct State;
  template <class Call>
  auto call(Call&& made);
  [[noreturn]] void refuse(const std::string& reason) const;
  std::unique_ptr<State> state_;
};

/// Returns whether the error means a missing server, not a wrong answer.
[[nodiscard]] bool server_missing(const JobError& error);

/// Calls `connect` until it succeeds, or until `patience` has passed, as long as the server is missing; `pause` waits
/// between calls. Throws JobError; does not call a silent server again.
void connect_within(std::chrono::milliseconds patience, const std::function<void()>& connect,
                    const std::function<void(std::chrono::milliseconds)>& pause);

}  // namespace maestro
