// SPDX-License-Identifier: Apache-2.0
// A server of a linear module, for tests: y = x W^T, with a loss of half the squared sum of y where it has no output.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "actors/rpc/rpc_server.hpp"
#include "actors/served/ServedModule.h"

namespace maestro::testing {

inline constexpr std::int64_t linear_inputs = 3;
inline constexpr std::int64_t linear_outputs = 2;

/// Returns the values of W (outputs, inputs) at the start.
[[nodiscard]] std::vector<float> linear_values();
/// Returns the report of the module. Inputs "x", or without `output` also a metric "loss".
[[nodiscard]] served::Module linear_module(bool output);

/// A session of the module. Tests override calls.
class LinearSession : public served::ServedModuleIf {
 public:
  explicit LinearSession(bool output) : output_(output), values_(linear_values()), gradients_(values_.size()) {}
  void open(served::Module& module, const served::Session& session) override;
  void forward(served::PassResult& result, const served::MicroBatch& batch) override;
  void backward(std::vector<served::Tensor>& input_gradients, std::int64_t number,
                const std::vector<served::Tensor>& gradients) override;
  void initial_values(std::string& values, const std::string& parameter, std::int64_t first,
                      std::int64_t count) override;
  void set_values(const std::string& parameter, std::int64_t first, const std::string& values) override;
  void gradients(std::string& gradients, const std::string& parameter, std::int64_t first, std::int64_t count) override;
  void clear_gradients() override;

 private:
  bool output_;
  std::vector<float> values_, gradients_;
  struct Kept {
    std::vector<float> x, y;
    double scale = 0;
  };
  std::map<std::int64_t, Kept> kept_;
};

/// Serves a session of its own to each connection.
class LinearServer {
 public:
  using Make = std::function<std::shared_ptr<served::ServedModuleIf>()>;
  LinearServer(const std::string& address, Make make);
  [[nodiscard]] std::string address() const { return server_.address(); }

 private:
  RpcServer server_;
};

/// Returns (rows, columns) floats of a port.
[[nodiscard]] served::Tensor wire_tensor(const std::string& port, std::int64_t columns,
                                         const std::vector<float>& values);

}  // namespace maestro::testing
