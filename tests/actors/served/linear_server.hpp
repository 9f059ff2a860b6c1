// SPDX-License-Identifier: Apache-2.0
// A server for tests with a linear module: y = x W^T. Without an output, its loss is half the squared sum of y.
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

/// Returns the initial values of W (outputs, inputs).
[[nodiscard]] std::vector<float> linear_values();
/// Returns the module's report: input "x", and output "y" if `output`, otherwise a metric "loss".
[[nodiscard]] served::Module linear_module(bool output);

/// A session with the module. Tests override calls.
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

/// Serves a separate session to each connection.
class LinearServer {
 public:
  using Make = std::function<std::shared_ptr<served::ServedModuleIf>()>;
  LinearServer(const std::string& address, Make make);
  [[nodiscard]] std::string address() const { return server_.address(); }

 private:
  RpcServer server_;
};

/// Returns a port's tensor of (rows, columns) floats.
[[nodiscard]] served::Tensor wire_tensor(const std::string& port, std::int64_t columns,
                                         const std::vector<float>& values);

}  // namespace maestro::testing
