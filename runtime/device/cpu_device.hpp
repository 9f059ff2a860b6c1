// SPDX-License-Identifier: Apache-2.0
// A pinned core and its work thread, or an unpinned host thread for sources.
#pragma once

#include <memory>
#include <string>

#include "runtime/device/device.hpp"
#include "runtime/device/work_thread.hpp"

namespace maestro {

class CpuDevice final : public Device {
 public:
  /// `core`: index into usable_cores() of the process, as in `cpu:K`, or -1 for no pinning. The table must outlive the
  /// device.
  CpuDevice(std::string name, int core, const OperatorTable& ops);
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] const OperatorTable& ops() const override { return *ops_; }
  void submit(Priority priority, std::function<void()> work) override { thread_.submit(priority, std::move(work)); }
  void stop() override { thread_.stop(); }

 private:
  std::string name_;
  const OperatorTable* ops_;
  WorkThread thread_;
};

}  // namespace maestro
