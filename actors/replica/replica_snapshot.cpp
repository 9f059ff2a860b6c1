// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/replica_snapshot.hpp"

#include <utility>

namespace maestro {

struct ReplicaSnapshot::Capture {
  std::vector<std::shared_ptr<SectionRunner>> runners;  // the first ranks, which hold all state
  std::vector<Section*> sections;
  SectionId section;
  std::string label;
  StatePart part;
  StepBoundary mark;
  SnapshotWriter* writer = nullptr;
  caf::actor replica;
  caf::actor coordinator;
  std::optional<KeptVersions> versions;
  SectionSnapshot snapshot;  // reuses an earlier snapshot's memory; holds gathered optimizer state
};

ReplicaSnapshot::ReplicaSnapshot(const ReplicaSpec& spec, const StepBoundary& mark, caf::actor replica,
                                 caf::actor coordinator, std::optional<KeptVersions> versions)
    : capture_(std::make_shared<Capture>()) {
  const GraphNode& node = spec.graph->node(spec.section);
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(node.layout.holders()); ++rank) {
    capture_->runners.push_back(spec.ranks[rank].runner);
    capture_->sections.push_back(&spec.ranks[rank].runner->section());
  }
  capture_->section = spec.section;
  capture_->label = node.section_name();
  capture_->part = {static_cast<std::uint32_t>(node.stage), static_cast<std::uint32_t>(node.stages)};
  capture_->mark = mark;
  capture_->writer = spec.snapshots;
  capture_->snapshot = spec.snapshots->spare(capture_->label, capture_->part);
  capture_->versions = std::move(versions);
  capture_->replica = std::move(replica);
  capture_->coordinator = std::move(coordinator);
}

ReplicaRank::Job ReplicaSnapshot::load_gathered_moments(ParameterBuffer which) const {
  return [capture = capture_, which]() -> Result<WorkResult> {
    const Status added = add_moments(capture->snapshot, capture->sections, which, ParameterBuffer::gradients);
    if (!added) return added.error();
    return WorkResult();
  };
}

ReplicaRank::Job ReplicaSnapshot::write() const {
  return [capture = capture_]() -> Result<WorkResult> {
    Result<SectionSnapshot> snapshot = take_snapshot(capture->sections, capture->label, std::move(capture->snapshot));
    if (!snapshot) return snapshot.error();
    snapshot->part = capture->part;
    if (capture->versions) {
      for (const KeptVersions::Version& version : capture->versions->versions) {
        snapshot->earlier.emplace_back(version.step.value(), capture->versions->whole(version));
      }
      capture->versions.reset();
    }
    const auto written = [replica = capture->replica, coordinator = capture->coordinator, section = capture->section,
                          step = capture->mark.step,
                          shadow = capture->mark.shadow](Result<std::vector<FileRecord>> files) {
      if (!files) return send_from_outside(replica, Failure{"checkpoint: " + files.error().message});
      SnapshotWritten message{section, step, shadow, {}};
      for (const FileRecord& file : *files) message.files.push_back({file.path, file.bytes, file.checksum});
      send_from_outside(coordinator, std::move(message));
    };
    capture->writer->write(capture->mark.staging, std::move(*snapshot), written);
    return WorkResult();
  };
}

}  // namespace maestro
