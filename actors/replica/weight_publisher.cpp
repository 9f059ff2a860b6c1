// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/weight_publisher.hpp"

#include <utility>

#include "sections/decoder/generator.hpp"

namespace maestro {

void WeightPublisher::connect(const Directory& directory) {
  generators_.clear();
  for (const GraphRegister& each : spec_->graph->registers()) {
    if (each.from != spec_->section) continue;
    for (const ReplicaAddress& replica : directory.replicas()) {
      if (replica.section == each.to) generators_.push_back(replica.actor);
    }
  }
}

std::function<RankJob(ReplicaRank&)> WeightPublisher::copies(StepId version) {
  version_ = std::make_shared<WeightVersion>();
  return [version, to = version_](ReplicaRank& rank) -> RankJob {
    return [runner = rank.runner(), version, to] {
      *to = copy_weights(runner->section(), version);
      return WorkResult();
    };
  };
}

void WeightPublisher::send_from(RunActor& replica) {
  std::vector<std::shared_ptr<const WeightVersion>> versions;
  if (sent_.empty()) versions = spec_->earlier_weights;
  versions.push_back(std::exchange(version_, nullptr));
  for (const auto& version : versions) {
    for (const caf::actor& generator : generators_) send_to(&replica, generator, WeightsPublished{version});
    sent_.push_back(version);
  }
  const auto most = static_cast<std::size_t>(spec_->staleness) + 1;
  if (sent_.size() > most) sent_.erase(sent_.begin(), sent_.end() - static_cast<std::ptrdiff_t>(most));
}

std::vector<std::shared_ptr<const WeightVersion>> WeightPublisher::earlier(StepId last) const {
  std::vector<std::shared_ptr<const WeightVersion>> earlier;
  for (const auto& version : sent_) {
    if (version->step <= last && version->step.value() + static_cast<std::uint64_t>(spec_->staleness) > last.value()) {
      earlier.push_back(version);
    }
  }
  return earlier;
}

}  // namespace maestro
