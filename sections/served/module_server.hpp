// SPDX-License-Identifier: Apache-2.0
// A replica's calls to the server of its module.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/core/tensor.hpp"
#include "sections/section.hpp"
#include "sections/served/served_module.hpp"

namespace maestro {

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
  std::vector<std::int64_t> visual;   ///< number of rows in each sample that the decoder receives for its images
  double loss_scale = 0;
};

/// Used by a single thread, except interrupt(). All errors are JobErrors with a line that begins with the address;
/// after an error the server is of no further use.
class ModuleServer {
 public:
  ModuleServer() = default;
  virtual ~ModuleServer() = default;
  ModuleServer(const ModuleServer&) = delete;
  ModuleServer& operator=(const ModuleServer&) = delete;

  /// Opens the session and returns the module; the first call.
  [[nodiscard]] virtual ServedModule open(const ServedSession& session) = 0;
  /// Runs a forward pass: writes the outputs and returns the metrics.
  [[nodiscard]] virtual std::vector<MetricSum> forward(const ServedPass& pass, std::span<const ServedTensor> inputs,
                                                       std::span<const ServedTensor> outputs) = 0;
  virtual void backward(std::int64_t pass, std::span<const ServedTensor> output_gradients,
                        std::span<const ServedTensor> input_gradients) = 0;

  /// Transfer a complete parameter.
  virtual void read_initial_values(const std::string& parameter, std::span<float> values) = 0;
  virtual void write_values(const std::string& parameter, std::span<const float> values) = 0;
  virtual void read_gradients(const std::string& parameter, std::span<float> gradients) = 0;
  virtual void clear_gradients() = 0;

  /// Ends the present and all later calls. Thread-safe.
  virtual void interrupt() noexcept = 0;
};

/// Returns whether the error means a missing server, not a wrong answer.
[[nodiscard]] bool server_missing(const JobError& error);

/// Calls `connect` until it succeeds, or until `patience` has passed, as long as the server is missing; `pause` waits
/// between calls. Throws JobError; does not call a silent server again.
void connect_within(std::chrono::milliseconds patience, const std::function<void()>& connect,
                    const std::function<void(std::chrono::milliseconds)>& pause);

}  // namespace maestro
