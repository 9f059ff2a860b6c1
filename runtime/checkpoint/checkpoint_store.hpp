// SPDX-License-Identifier: Apache-2.0
// Writing checkpoints so that a crash at any moment leaves the previous checkpoint loadable.
//
// CK-1 (complete names): a folder named step-N or step-N.old was complete, with its checkpoint.json, when it got that
//       name.
// CK-2 (durable commits): whenever the machine stops, every checkpoint that commit reported and did not remove for age
//       can be loaded.
// CK-3 (retention): after a successful commit at most `keep` checkpoints are left, the last committed.
// CK-4 (crash leftovers): leftovers of a crash are never loaded, and are gone after the run's next commit of a later
//       step.
// CK-5 (other runs untouched): no folder of another run is replaced, removed or counted, be it complete, replaced or
//       staging.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

struct CheckpointStoreOptions {
  std::int64_t keep = 2;     ///< at least 1
  OperationHook after = {};  ///< called after every operation on the filesystem, for tests; see OperationHook
  /// Holds a folder by section with the files that go into the section's folder as they are, config.json among them.
  std::filesystem::path model_files = {};
};

/// Protocol: the coordinator calls begin, every process that owns a section, or a part of one, calls write_section on a
/// thread of its own, the coordinator gathers all file records and calls commit. Processes share the same filesystem.
/// The object holds no state beyond its settings: const calls are thread-safe as long as a single coordinator begins
/// and commits, and commits do not overlap. Nothing throws but the constructor.
class CheckpointStore {
 public:
  /// `root` is the checkpoints folder; begin creates it. Throws JobError when keep < 1.
  explicit CheckpointStore(std::filesystem::path root, CheckpointStoreOptions options = {});

  /// Returns an empty staging folder of the run with the id `run`; leftovers of a crashed attempt in it are removed.
  [[nodiscard]] Result<std::filesystem::path> begin(StepId step, std::string_view run = {}) const;

  /// Writes and flushes the section's three files below `staging`, or the files of state.part: its model and optimizer
  /// file, and for part 0 config.json and copies of the section's `model_files`, whose config.json replaces that of
  /// `state`. Parts of a section may be written at once, from several processes. Section
  /// names are letters, digits, '_', '-' and '.', not starting with '.'. Errors (invalid_argument for such a name, an
  /// impossible part, or tensors that write_safetensors refuses; else of the system) name the section; the staging
  /// folder may hold some of the files then: begin again or leave it to CK-4.
  [[nodiscard]] Result<std::vector<FileRecord>> write_section(const std::filesystem::path& staging,
                                                              std::string_view section,
                                                              const SectionState& state) const;

  /// Makes the staged checkpoint the latest, then removes checkpoints of its run beyond `keep` and leftovers of lower
  /// steps. `manifest` holds the step and the run passed to begin and the records of all sections and their parts;
  /// commit adds sequence, version and the index file of every section in parts. A checkpoint of the same step is
  /// replaced. An error states whether the new checkpoint is in place. Errors (corrupt): a staged file differs from its
  /// record; the parts of a section do not make a section, as in read_section, with section and part.
  [[nodiscard]] Status commit(const std::filesystem::path& staging, Manifest manifest) const;

  [[nodiscard]] Result<std::filesystem::path> latest() const { return latest_checkpoint(root_); }
  [[nodiscard]] const std::filesystem::path& root() const { return root_; }

 private:
  /// The names of the section's files in options_.model_files.
  [[nodiscard]] std::vector<std::string> prepared_files(const std::string& section) const;
  [[nodiscard]] Status check_staged(const std::filesystem::path& staging, const Manifest& manifest) const;
  [[nodiscard]] Status write_indexes(const std::filesystem::path& staging, Manifest& manifest) const;
  [[nodiscard]] Status publish(const std::filesystem::path& staging, const Manifest& manifest) const;
  [[nodiscard]] Status remove_superseded(const Manifest& committed) const;
  [[nodiscard]] Status remove_folder(const std::filesystem::path& folder, std::uint64_t step) const;
  [[nodiscard]] Status remove_tree(const std::filesystem::path& folder) const;
  [[nodiscard]] Status rename_folder(const std::filesystem::path& from, const std::filesystem::path& to) const;
  [[nodiscard]] std::uint64_t next_sequence() const;
  void done(std::string_view operation) const {
    if (options_.after) options_.after(operation);
  }

  std::filesystem::path root_;
  CheckpointStoreOptions options_;
};

}  // namespace maestro
