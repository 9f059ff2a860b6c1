// SPDX-License-Identifier: Apache-2.0
// Writes checkpoints so that a crash at any time leaves the previous checkpoint loadable.
//
// CK-1 (complete names): a folder named step-N or step-N.old was complete, with its checkpoint.json, when it got that
//       name.
// CK-2 (durable commits): even if the machine stops at any time, every checkpoint that commit reported and did not
//       remove for its age can be loaded.
// CK-3 (retention): after a successful commit, at most `keep` checkpoints remain, which were committed last.
// CK-4 (crash leftovers): leftovers of a crash are never loaded; the run's next commit of a later step removes them.
// CK-5 (other runs untouched): no folder of another run, be it complete, replaced or staging, is replaced, removed or
//       counted.
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
  std::int64_t keep = 2;     ///< checkpoints kept, at least 1
  OperationHook after = {};  ///< called after every filesystem operation, for tests; see OperationHook
  /// Contains a folder per section with files that are copied unchanged to the section's folder, including config.json.
  std::filesystem::path model_files = {};
};

/// Protocol: the coordinator calls begin; every process with a section, or with a part, calls write_section on a
/// separate thread; the coordinator gathers all file records and calls commit. Processes share the filesystem. The
/// object only holds its settings: const calls are thread-safe as long as a single coordinator begins and commits, and
/// commits do not overlap. Only the constructor throws.
class CheckpointStore {
 public:
  /// Makes a store in the checkpoints folder `root`, which begin creates. Throws JobError if keep < 1.
  explicit CheckpointStore(std::filesystem::path root, CheckpointStoreOptions options = {});

  /// Returns an empty staging folder for the run with id `run`; leftovers of a crashed attempt are removed.
  [[nodiscard]] Result<std::filesystem::path> begin(StepId step, std::string_view run = {}) const;

  /// Writes and flushes the section's three files below `staging`, or the files of state.part: its model and optimizer
  /// file, and for part 0 config.json and copies of the section's `model_files`, whose config.json replaces the text in
  /// `state`. Several processes may write parts of a section at the same time. Section names consist of letters,
  /// digits,
  /// '_', '-' and '.', and do not begin with '.'. Errors name the section: invalid_argument for another name, an
  /// invalid part, or tensors that write_safetensors refuses; otherwise system errors. The staging folder may then
  /// contain some of the files: begin again, or leave it to CK-4.
  [[nodiscard]] Result<std::vector<FileRecord>> write_section(const std::filesystem::path& staging,
                                                              std::string_view section,
                                                              const SectionState& state) const;

  /// Makes the staged checkpoint the latest, then removes its run's checkpoints beyond `keep` and leftovers of lower
  /// steps. `manifest` contains the step and run passed to begin, and the records of all sections and parts; commit
  /// adds sequence, version and the index file of every section in parts. A checkpoint of the same step is replaced. An
  /// error states whether the new checkpoint is in place. Errors (corrupt): a staged file differs from its record;
  /// parts do not form a section, as in read_section, with section and part.
  [[nodiscard]] Status commit(const std::filesystem::path& staging, Manifest manifest) const;

  [[nodiscard]] Result<std::filesystem::path> latest() const { return latest_checkpoint(root_); }
  [[nodiscard]] const std::filesystem::path& root() const { return root_; }

 private:
  /// Returns the names of the section's files in options_.model_files.
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
