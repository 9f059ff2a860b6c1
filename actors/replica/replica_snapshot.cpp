// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/replica_snapshot.hpp"

#include <utility>

namespace maestro {

struct ReplicaSnapshot::Taken {
  std::vector<std::shared_ptr<SectionRunner>> runners;  // of the tensor ranks of the first context part: all there is
  std::vector<Section*> sections;
  SectionId section;
  std::string label;
  StatePart part;
  StepBoundary mark;
  SnapshotWriter* writer = nullptr;
  caf::actor replica;
  caf::actor coordinator;
  SectionSnapshot moments;  // those that replicas share
};

ReplicaSnapshot::ReplicaSnapshot(const ReplicaSpec& spec, const StepBoundary& mark, caf::actor replica,
                                 caf::actor coordinator)
    : taken_(std::make_shared<Taken>()) {
  const GraphNode& node = spec.graph->node(spec.section);
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(node.layout.tensor); ++rank) {
    taken_->runners.push_back(spec.ranks[rank].runner);
    taken_->sections.push_back(&spec.ranks[rank].runner->section());
  }
  taken_->section = spec.section;
  taken_->label = node.section_name();
  taken_->part = {static_cast<std::uint32_t>(node.stage), static_cast<std::uint32_t>(node.stages)};
  taken_->mark = mark;
  taken_->writer = spec.snapshots;
  taken_->replica = std::move(replica);
  taken_->coordinator = std::move(coordinator);
}

ReplicaRank::Job ReplicaSnapshot::load_gathered_moments(ParameterBuffer which) const {
  return [taken = taken_, which]() -> Result<WorkResult> {
    const Status added = add_moments(taken->moments, taken->sections, which, ParameterBuffer::gradients);
    if (!added) return added.error();
    return WorkResult();
  };
}

ReplicaRank::Job ReplicaSnapshot::write() const {
  return [taken = taken_]() -> Result<WorkResult> {
    Result<SectionSnapshot> snapshot = take_snapshot(taken->sections, taken->label);
    if (!snapshot) return snapshot.error();
    if (taken->sections.front()->parameters().optimizer_sharded()) {
      snapshot->first_moments = std::move(taken->moments.first_moments);
      snapshot->second_moments = std::move(taken->moments.second_moments);
    }
    snapshot->part = taken->part;
    const auto written = [replica = taken->replica, coordinator = taken->coordinator, section = taken->section,
                          step = taken->mark.step](Result<std::vector<FileRecord>> files) {
      if (!files) return tell_from_outside(replica, Failure{"checkpoint: " + files.error().message});
      SnapshotWritten message{section, step, {}};
      for (const FileRecord& file : *files) message.files.push_back({file.path, file.bytes, file.checksum});
      tell_from_outside(coordinator, std::move(message));
    };
    taken->writer->write(taken->mark.staging, std::move(*snapshot), written);
    return WorkResult();
  };
}

}  // namespace maestro
