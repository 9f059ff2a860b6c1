// SPDX-License-Identifier: Apache-2.0
// The receiving end of an edge of weights, at a generator's replica: a ring whose slots hold a version each.
//
// WX-1 (whole versions): a version can be read when every piece of it is here.
// WX-2 (in order): a version's slot is free when no open step reads it or an earlier version; then its senders
//       receive a credit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/messages/message_types.hpp"
#include "actors/replica/replica_spec.hpp"
#include "runtime/schedule/version_map.hpp"
#include "transport/ring/input_ring.hpp"

namespace maestro {

/// Functions that send a receiver's messages; set by the actor.
struct WeightOutbox {
  std::function<void(const caf::actor&, VersionsWanted)> wanted;
  std::function<void(const caf::actor&, Credit)> credit;
};

/// Not thread-safe; belongs to the replica's actor. Its memory is read by jobs on the device's thread.
class WeightReceiver {
 public:
  /// `spec` outlives it. `self` receives RingEvent.
  WeightReceiver(const ReplicaSpec& spec, const caf::actor& self);
  /// Takes the senders' addresses. Throws JobError(internal) unless they send each of the generator's weights once
  /// (WG-1).
  void connect(const Directory& directory, WeightOutbox outbox);
  /// Sets the first version that is read. Requests it and all later versions, once the senders are known.
  void begin(StepId first);
  /// Counts a sender's promise. Returns true for the last one: all versions from the first one on will come.
  [[nodiscard]] bool promised() { return ++promises_ == senders_.size(); }
  void leave() { senders_.clear(); }

  Status landed(std::uint32_t immediate);
  Status handed_over(const PieceHandOver& piece);
  /// Returns whether the weights before step `version` are here.
  [[nodiscard]] bool complete(StepId version) const;
  /// Returns a complete version; the map describes it.
  [[nodiscard]] Result<ArrivedTensor> open(StepId version);
  [[nodiscard]] const std::shared_ptr<const VersionMap>& map() const { return map_; }
  /// No step reads the versions before `version` any more: their slots are free, as soon as they are complete.
  Status release_before(StepId version);

 private:
  [[nodiscard]] std::uint64_t sequence_of(StepId version) const { return version.value() - first_->value(); }
  [[nodiscard]] RingAddress address() const;
  /// Requests the versions, if the senders and the first version are known.
  void ask();
  /// Announces the versions to the ring that may arrive in its free slots.
  Status expect();
  Status release();

  const ReplicaSpec* spec_;
  std::unique_ptr<InputRing> ring_;
  std::unique_ptr<Region> region_;
  std::shared_ptr<const VersionMap> map_;  // shared with jobs
  std::vector<caf::actor> senders_;
  WeightOutbox outbox_;
  std::optional<StepId> first_;  // version with sequence 0
  std::size_t promises_ = 0;
  std::vector<std::uint64_t> complete_;  // sequences that are not released
  std::uint64_t expected_ = 0;           // sequences that the ring expects
  std::uint64_t unread_ = 0;             // sequences before it are not read any more
};

}  // namespace maestro
