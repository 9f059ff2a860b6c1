// SPDX-License-Identifier: Apache-2.0
// Writes snapshots of sections beside training: a thread per process, started on first use.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_store.hpp"
#include "runtime/device/work_thread.hpp"
#include "sections/section.hpp"
#include "sections/state_io.hpp"

namespace maestro {

/// A section's state at the end of a step, or a part of it, independent of the section.
struct SectionSnapshot {
  std::string section;
  StatePart part;  ///< the whole section by default
  std::string config;
  bool adapters = false;
  std::uint64_t updates = 0;  ///< of the optimizer so far
  TensorSnapshot values;
  TensorSnapshot first_moments;
  TensorSnapshot second_moments;
};

/// Copies a trained section's checkpoint state, given the tensor ranks of the first context part of a replica. Runs on
/// a device thread, while the others rest. The memory is that of `into` where it suffices; sharded optimizer state
/// stays as it is there, from add_moments().
Result<SectionSnapshot> take_snapshot(std::span<Section* const> tensor_ranks, const std::string& name,
                                      SectionSnapshot into = {});
/// Copies `which`, first or second moments, from the buffer that holds them complete: `from` is that buffer itself or
/// gradients. Uses the memory that the snapshot has for them.
Status add_moments(SectionSnapshot& snapshot, std::span<Section* const> tensor_ranks, ParameterBuffer which,
                   ParameterBuffer from);
/// Restores a stored state, whatever its number of parts. Runs on the starting thread, before any work.
Status restore_snapshot(Section& section, const std::filesystem::path& checkpoint, const std::string& name);

/// Thread-safe.
class SnapshotWriter {
 public:
  /// `keeps_memory`: of each section's last snapshot, for the next: a state's size in memory, for frequent snapshots.
  explicit SnapshotWriter(CheckpointStore store, bool keeps_memory = false)
      : store_(std::move(store)), keeps_memory_(keeps_memory), thread_([] {}) {}
  /// Returns an earlier snapshot of this part that was written, for its memory; an empty one if there is none.
  [[nodiscard]] SectionSnapshot spare(const std::string& section, const StatePart& part);
  using Written = std::function<void(Result<std::vector<FileRecord>>)>;
  /// Returns at once; the writer's thread calls `written`.
  void write(std::filesystem::path staging, SectionSnapshot snapshot, Written written);
  using Report = std::function<void()>;
  /// Runs `work`, file work that must not block an actor, on the writer's thread, and then the report that it returns.
  /// An exception of `work` is passed to `failed` as a single line.
  void run(std::function<Report()> work, std::function<void(const std::string&)> failed);
  /// Whether work is queued or running. Work whose report runs has ended: its receiver never sees it as busy.
  [[nodiscard]] bool busy() const { return pending_.load(std::memory_order_relaxed) > 0; }
  [[nodiscard]] const CheckpointStore& store() const { return store_; }
  void stop() { thread_.stop(); }

 private:
  CheckpointStore store_;
  bool keeps_memory_;
  std::mutex mutex_;
  std::map<std::pair<std::string, std::uint32_t>, SectionSnapshot> spares_;  // by section and stage
  std::atomic<int> pending_ = 0;
  WorkThread thread_;
};

}  // namespace maestro
