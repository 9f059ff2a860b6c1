// SPDX-License-Identifier: Apache-2.0
// A section that another process computes. The server reports the ports. The parameters of a trained section stay here
// and are stepped, stored and summed over replicas like all others: the server receives their values after each step,
// and their gradients are fetched at the step's end.
//
// VS-1 (fresh values): every pass is computed from the present values of parameters().
// VS-2 (a server that keeps no state is replaced): if passes are not kept for a backward pass, a connection that ends
//       is made again within the time limit, and the pass is computed again. Otherwise ServiceLost is thrown.
// VS-3 (same module): a later connection serves the same ports, and the same parameters or fingerprint, as when the job
//       was checked.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sections/served/module_server.hpp"

namespace maestro {

/// Name of the type in job files.
inline constexpr const char* served_type = "served";

struct ServedOptions {
  std::vector<std::string> addresses;  ///< replicas use them in turn
  /// Connects to the server at an address. Throws JobError.
  std::function<std::unique_ptr<ModuleServer>(const std::string& address)> connect;
  std::chrono::milliseconds first_connect{30000};  ///< time limit for connecting at the start of a run
  std::chrono::milliseconds reconnect{30000};      ///< time limit for connecting again
  std::shared_ptr<const ServedModule> module;      ///< null only in tools without a server
};

class ServedSection final : public Section {
 public:
  /// Connects unless `context` is a meta context. Throws JobError.
  ServedSection(const SectionContext& context, ServedOptions options);
  ~ServedSection() override;

  [[nodiscard]] Ports ports() const override { return module().ports; }
  Parameters& parameters() override { return parameters_; }
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override;
  [[nodiscard]] Cost cost(const SampleShape& sample) const override;
  [[nodiscard]] std::vector<StateEntry> state() override;
  [[nodiscard]] std::string config_json() const override;
  [[nodiscard]] std::string description() const override;
  [[nodiscard]] std::string origin() const override { return module().fingerprint; }
  [[nodiscard]] bool fetches_gradients() const override { return trained_; }
  void fetch_gradients() override;
  void interrupt() noexcept override;

 private:
  class KeptPass;
  [[nodiscard]] const ServedModule& module() const;
  [[nodiscard]] ServedSession session() const;
  void add_parameters(const SectionContext& context);
  void connect_once();
  void connect(std::chrono::milliseconds patience);
  void read_initial_values(const std::string& parameter, std::span<float> values);
  void write_values();
  [[nodiscard]] std::vector<MetricSum> compute(const ServedPass& pass, std::span<const ServedTensor> inputs,
                                               std::span<const ServedTensor> outputs);
  void go_back(std::int64_t pass, std::span<const ServedTensor> output_gradients,
               std::span<const ServedTensor> input_gradients);

  ServedOptions options_;
  std::string name_;
  std::string address_;
  std::int64_t replica_ = 0;
  bool trained_ = false;
  bool backward_ = false;
  Parameters parameters_;
  std::unique_ptr<ModuleServer> initial_;  // connection to the first address, while values are drawn
  std::int64_t passes_ = 0;
  bool stale_ = true;    // the server lacks the present values
  bool summed_ = false;  // the server has gradients
  std::mutex mutex_;     // guards connection_, for interrupt()
  std::condition_variable interruption_;
  bool interrupted_ = false;
  std::unique_ptr<ModuleServer> connection_;
};

}  // namespace maestro
