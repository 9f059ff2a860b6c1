// SPDX-License-Identifier: Apache-2.0
// Writes snapshots of sections during training, on a thread per process that is started on first use.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint/checkpoint_store.hpp"
#include "runtime/device/work_thread.hpp"
#include "sections/section.hpp"
#include "sections/state_io.hpp"
#include "sections/weight_version.hpp"

namespace maestro {

/// A copy of a section's state at the end of a step, or of a part of this state.
struct SectionSnapshot {
  std::string section;
  StatePart part;  ///< the complete section by default
  std::string config;
  bool adapters = false;
  std::uint64_t updates = 0;                                    ///< steps of the optimizer so far
  std::vector<std::pair<std::uint64_t, WholeWeights>> earlier;  ///< weights before steps, which generators still read
  TensorSnapshot values;
  TensorSnapshot first_moments;
  TensorSnapshot second_moments;
  TensorSnapshot figures;  // experts' loads and tables' sums of squares (UpdateRule)
};

/// Copies a trained section's checkpoint state, given sections of a replica's ranks that hold all of it. Runs on a
/// device thread, while the others rest. Reuses the memory of `into` if it suffices, and keeps the sharded optimizer
/// state that add_moments() has stored there.
Result<SectionSnapshot> take_snapshot(std::span<Section* const> ranks, const std::string& name,
                                      SectionSnapshot into = {});
/// Copies `which`, the first or second moments, from the buffer with all of them: `from` is either that buffer or the
/// gradients. Uses the snapshot's memory for them.
Status add_moments(SectionSnapshot& snapshot, std::span<Section* const> ranks, ParameterBuffer which,
                   ParameterBuffer from);
/// The part of a stored state that is restored.
enum class RestoredState : std::uint8_t { all, values };
/// Restores a stored state with any number of parts. Runs on the starting thread, before any work.
Status restore_snapshot(Section& section, const std::filesystem::path& checkpoint, const std::string& name,
                        RestoredState which = RestoredState::all);

/// Thread-safe.
class SnapshotWriter {
 public:
  /// `keeps_memory`: keep the memory of each section's last snapshot for the next. That costs a state's size, and
  /// serves frequent snapshots.
  explicit SnapshotWriter(CheckpointStore store, bool keeps_memory = false)
      : store_(std::move(store)), keeps_memory_(keeps_memory), thread_([] {}) {}
  /// Returns an earlier, written snapshot of this part for its memory, or an empty snapshot.
  [[nodiscard]] SectionSnapshot spare(const std::string& section, const StatePart& part);
  using Written = std::function<void(Result<std::vector<FileRecord>>)>;
  /// Queues the snapshot and returns at once; the writer's thread calls `written`.
  void write(std::filesystem::path staging, SectionSnapshot snapshot, Written written);
  using Report = std::function<void()>;
  /// Runs `work`, file work that must not block an actor, on the writer's thread, then calls the report that it
  /// returns. Passes an exception of `work` to `failed` as a single line.
  void run(std::function<Report()> work, std::function<void(const std::string&)> failed);
  /// Returns whether work is queued or running. Work has ended when its report runs, so the report's receiver does not
  /// see the writer as busy.
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
