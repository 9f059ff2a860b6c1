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
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "actors/rpc/key_set.hpp"
#include "sections/served/module_server.hpp"

namespace maestro {

struct ServedAddress {
  std::string address;                        ///< "unix:/path" or "host:port"
  std::shared_ptr<const KeySet> keys;         ///< TLS with mutual certificates; null: plain
  std::chrono::milliseconds patience{60000};  ///< time limit for an answer, including its computation
};

class ServedConnection final : public ModuleServer {
 public:
  explicit ServedConnection(const ServedAddress& at);
  ~ServedConnection() override;

  [[nodiscard]] ServedModule open(const ServedSession& session) override;
  [[nodiscard]] std::vector<MetricSum> forward(const ServedPass& pass, std::span<const ServedTensor> inputs,
                                               std::span<const ServedTensor> outputs) override;
  void backward(std::int64_t pass, std::span<const ServedTensor> output_gradients,
                std::span<const ServedTensor> input_gradients) override;
  void read_initial_values(const std::string& parameter, std::span<float> values) override;
  void write_values(const std::string& parameter, std::span<const float> values) override;
  void read_gradients(const std::string& parameter, std::span<float> gradients) override;
  void clear_gradients() override;
  void interrupt() noexcept override;

 private:
  struct State;
  template <class Call>
  auto call(Call&& made);
  [[noreturn]] void refuse(const std::string& reason) const;
  std::unique_ptr<State> state_;
};

}  // namespace maestro
