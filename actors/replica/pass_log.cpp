// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/pass_log.hpp"

namespace maestro {

void PassLog::finished(std::vector<Metric> metrics, PassCost took) {
  running_.metrics = std::move(metrics);
  running_.took = took;
}

MicroBatchDone PassLog::retire(const MicroBatchPlan& plan, Clock::time_point now) {
  Record record = std::move(running_);
  if (const auto kept = kept_.find(plan.index); kept != kept_.end()) {
    const double backward = record.took.backward;
    record = std::move(kept->second);
    record.took.backward = backward;
    kept_.erase(kept);
  }
  MicroBatchDone message;
  message.section = plan.section;
  message.replica = plan.replica;
  message.step = plan.step;
  message.pass = plan.pass;
  message.index = plan.index;
  message.samples = static_cast<std::int64_t>(plan.samples.size());
  message.metrics = std::move(record.metrics);
  message.forward_ms = record.took.forward;
  message.backward_ms = record.took.backward;
  message.age_ms = std::chrono::duration<double, std::milli>(now - record.began).count();
  return message;
}

}  // namespace maestro
