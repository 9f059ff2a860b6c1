// SPDX-License-Identifier: Apache-2.0
#include "actors/messages/ready_queue.hpp"

namespace maestro {

namespace {

thread_local RunHere* here = nullptr;

}  // namespace

RunHere::RunHere() {
  here = this;
}

RunHere::~RunHere() {
  while (!ready_.empty()) {
    caf::resumable* job = ready_.front();
    ready_.pop_front();
    caf::scheduler::abstract_coordinator& scheduler = unit_->system().scheduler();
    if (job->resume(unit_, scheduler.max_throughput()) == caf::resumable::resume_later) {
      scheduler.enqueue(job);  // returns here
    } else {
      caf::intrusive_ptr_release(job);
    }
  }
  here = nullptr;
}

bool RunHere::take(caf::scoped_execution_unit& unit, caf::resumable* job) {
  if (here == nullptr || dynamic_cast<RunsAnywhere*>(job) == nullptr) return false;
  here->unit_ = &unit;
  here->ready_.push_back(job);
  return true;
}

namespace {

/// Returns whether to wake a worker for the jobs in the queue, and counts it as woken.
bool wakes_another(ReadyQueue::coordinator_data& data) {
  if (data.asleep == 0 || data.woken > 0) return false;
  ++data.woken;
  return true;
}

}  // namespace

void ReadyQueue::push(coordinator_data& data, caf::resumable* job, std::size_t enough) {
  bool wake = false;
  {
    const std::lock_guard lock(data.mutex);
    data.jobs.push_back(job);
    wake = data.jobs.size() >= enough && wakes_another(data);
  }
  if (wake) data.more.notify_one();
}

caf::resumable* ReadyQueue::pop(coordinator_data& data) {
  std::unique_lock lock(data.mutex);
  while (data.jobs.empty()) {
    ++data.asleep;
    data.more.wait(lock, [&data] { return data.woken > 0; });
    --data.woken;
    --data.asleep;
  }
  caf::resumable* job = data.jobs.front();
  data.jobs.pop_front();
  const bool wake = !data.jobs.empty() && wakes_another(data);
  lock.unlock();
  if (wake) data.more.notify_one();
  return job;
}

void use_ready_queue(caf::actor_system_config& config, std::size_t workers) {
  config.set("scheduler.max-threads", workers);
  config.module_factories.push_back([](caf::actor_system& system) -> caf::actor_system::module* {
    return new caf::scheduler::coordinator<ReadyQueue>(system);
  });
}

}  // namespace maestro
