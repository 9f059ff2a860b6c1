// SPDX-License-Identifier: Apache-2.0
// A replica's connection to the server of its module.
//
// VN-1 (bounded calls): a call ends within the time limit of an answer, and at once after interrupt().
// VN-2 (checked answers): a tensor of another name, dtype, shape or size than expected, an absent or additional tensor,
//       and bytes that are no message are refused with a line that names the address; memory of the caller is written
//       only from accepted answers.
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
  std::chrono::milliseconds patience{60000};  ///< for an answer, computation included
};

/// The replica on whose behalf the connection computes.
struct ServedSession {
  std::string section;
  std::int64_t replica = 0;
  bool trained = false;
  bool backward = false;  ///< passes may be kept for backward()
};

/// The (rows, columns) tensor of a port, in host memory: read when it is sent, written when it is received.
struct ServedTensor {
  std::string port;
  Tensor tensor;
};

/// A micro-batch without its tensors.
struct ServedPass {
  std::int64_t number = 0;  ///< of the session, rising
  bool keep = false;        ///< backward() will follow
  bool training = false;    ///< or validation
  std::vector<std::int64_t> samples;
  std::vector<std::int64_t> tokens;   ///< of each sample
  std::vector<std::int64_t> patches;  ///< of each sample
  double loss_scale = 0;
};

/// Used by a single thread, except interrupt(). All errors are JobErrors of a line that begins with the address; after
/// one the connection is of no further use.
class ServedConnection {
 public:
  explicit ServedConnection(const ServedAddress& at);
  ~ServedConnection();
  ServedConnection(const ServedConnection&) = delete;
  ServedConnection& operator=(const ServedConnection&) = delete;

  /// The first call.
  [[nodiscard]] ServedModule open(const ServedSession& session);
  /// Writes the outputs and returns the metrics.
  [[nodiscard]] std::vector<MetricSum> forward(const ServedPass& pass, std::span<const ServedTensor> inputs,
                                               std::span<const ServedTensor> outputs);
  void backward(std::int64_t pass, std::span<const ServedTensor> output_gradients,
                std::span<const ServedTensor> input_gradients);

  /// Parameters travel in parts of a bounded size.
  void read_initial_values(const std::string& parameter, std::span<float> values);
  void write_values(const std::string& parameter, std::span<const float> values);
  void read_gradients(const std::string& parameter, std::span<float> gradients);
  void clear_gradients();

  /// Ends the present call and all later ones. From any thread.
  void interrupt() noexcept;

 private:
  struct State;
  template <class Call>
  auto call(Call&& made);
  [[noreturn]] void refuse(const std::string& reason) const;
  std::unique_ptr<State> state_;
};

/// Whether the error is that of a missing server, and not of its answer.
[[nodiscard]] bool server_missing(const JobError& error);

/// Calls `connect`, and again while no server is there, until it succeeds or `patience` is over; `pause` waits in
/// between. Throws JobError; a server that is silent is not called again.
void connect_within(std::chrono::milliseconds patience, const std::function<void()>& connect,
                    const std::function<void(std::chrono::milliseconds)>& pause);

}  // namespace maestro
