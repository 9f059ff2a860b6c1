// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cpu_device.hpp"

#include <pthread.h>
#include <sched.h>

#include "runtime/core/usable_cores.hpp"
#include "runtime/ops/cpu/thread.hpp"

namespace maestro {

namespace {

void pin_this_thread(int index) {
  const std::vector<int> cores = usable_cores();
  if (index < 0 || index >= static_cast<int>(cores.size())) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cores[static_cast<std::size_t>(index)], &set);
  // A refusal (some sandboxes) costs speed, not correctness.
  (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

}  // namespace

CpuDevice::CpuDevice(std::string name, int core, const OperatorTable& ops)
    : name_(std::move(name)), ops_(&ops), thread_([core] {
        pin_this_thread(core);
        cpu::prepare_thread();
      }) {}

}  // namespace maestro
