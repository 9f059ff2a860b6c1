// SPDX-License-Identifier: Apache-2.0
// Devices that a test drives, and the groups of these devices.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device/backend.hpp"

namespace maestro::testing {

/// Work waits until the simulation runs it, critical work first (WT-2). A group runs a collective when all members have
/// queued it; until then finish() completes nothing.
class SimulatedDevice final : public Device {
 public:
  explicit SimulatedDevice(const OperatorTable& ops) : ops_(&ops) {}
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] const OperatorTable& ops() const override { return *ops_; }
  void submit(Priority priority, std::function<void()> work) override {
    (priority == Priority::critical ? critical_ : background_).push_back(std::move(work));
  }
  void finish(std::function<void(const std::string& failure)> done) override;
  void stop() override {
    critical_.clear();
    background_.clear();
  }
  [[nodiscard]] bool idle() const { return critical_.empty() && background_.empty(); }
  void run_one();
  void run_all() {
    while (!idle()) run_one();
  }

  void exchange_queued() { ++exchanges_; }
  void exchange_done();

 private:
  std::string name_ = "simulated";
  const OperatorTable* ops_;
  std::deque<std::function<void()>> critical_;
  std::deque<std::function<void()>> background_;
  std::int64_t exchanges_ = 0;  // queued and not finished
  std::deque<std::function<void(const std::string&)>> held_;
};

/// Groups of simulated devices in a single thread. Joining a group never blocks.
class SimulatedBackend final : public DeviceBackend {
 public:
  /// Returns each group's ranks in joining order. Groups are numbered in the order of make_group_id().
  [[nodiscard]] const std::map<int, std::vector<std::int64_t>>& joined() const { return joined_; }
  /// Returns the operations of all groups in execution order.
  [[nodiscard]] const std::vector<std::string>& exchanges() const { return exchanges_; }
  /// Returns the errors of members whose calls do not match.
  [[nodiscard]] const std::vector<std::string>& problems() const { return problems_; }
  /// Makes the next exchange fail with this reason, and its group with it.
  void break_next(std::string why) { breaks_ = std::move(why); }

  [[nodiscard]] std::size_t devices() const override { return 0; }
  [[nodiscard]] std::string describe(std::size_t /*index*/) const override { return "simulated"; }
  [[nodiscard]] std::size_t used_bytes(std::size_t /*index*/) const override { return 0; }
  [[nodiscard]] std::size_t memory_bytes(std::size_t /*index*/) const override { return 0; }
  [[nodiscard]] std::unique_ptr<Device> open(const DeviceOptions& options) const override;
  [[nodiscard]] std::vector<std::byte> make_group_id() const override;
  [[nodiscard]] std::unique_ptr<Communicator> join(Device& device, const GroupRank& rank) const override;
  [[nodiscard]] std::vector<std::byte> export_memory(Device& device, const std::byte* block) const override;
  [[nodiscard]] std::unique_ptr<ImportedMemory> import_memory(Device& device, std::span<const std::byte> exported,
                                                              std::string& why_not) const override;

 private:
  class Group;
  class Member;
  // make_group() is const but changes groups; all calls are made in the test's thread
  mutable std::map<int, std::shared_ptr<Group>> groups_;
  mutable std::map<int, std::vector<std::int64_t>> joined_;
  mutable std::vector<std::string> exchanges_;
  mutable std::vector<std::string> problems_;
  mutable std::string breaks_;
};

}  // namespace maestro::testing
