// SPDX-License-Identifier: Apache-2.0
// Checkpoints that are kept forever, and checkpoints that a run goes back to.
//
// AC-1 (whole or absent): an archived folder under its final name is complete, even if the machine stops at any time.
// AC-2 (own files): after keep(), changes to a checkpoint's folder do not affect the archive. Files are hard links, or
//       copies if the file system lacks links; a checkpoint's files are never changed in place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "runtime/checkpoint/checkpoint_store.hpp"
#include "runtime/checkpoint/manifest.hpp"
#include "runtime/core/result.hpp"
#include "runtime/files/atomic_file.hpp"

namespace maestro {

inline constexpr const char* archive_folder = "archive";  ///< name in the run's folder

enum class ArchiveForm : std::uint8_t {
  full,  ///< the complete checkpoint, so that a run can continue
  bf16   ///< a Hugging Face folder per trained section, with weights as BF16, and run.json
};

/// The archive of a run. Thread-safe as long as calls of keep() do not overlap.
class CheckpointArchive {
 public:
  explicit CheckpointArchive(std::filesystem::path root, OperationHook after = {})
      : root_(std::move(root)), after_(std::move(after)) {}
  /// Keeps a checkpoint as <root>/step-N and returns that path. A folder for the same step is replaced, or refused if
  /// it belongs to another run. Errors name the files.
  [[nodiscard]] Result<std::filesystem::path> keep(const std::filesystem::path& checkpoint, ArchiveForm form) const;
  [[nodiscard]] const std::filesystem::path& root() const { return root_; }

 private:
  [[nodiscard]] Status sweep() const;
  [[nodiscard]] Status write(const std::filesystem::path& checkpoint, const Manifest& manifest, ArchiveForm form,
                             const std::filesystem::path& staging) const;
  [[nodiscard]] Status publish(const std::filesystem::path& staging, std::uint64_t step) const;
  void done(std::string_view operation) const {
    if (after_) after_(operation);
  }

  std::filesystem::path root_;
  OperationHook after_;
};

/// Returns the name of a spike's folder in the archive: "spike-00000200".
[[nodiscard]] std::string spike_folder_name(std::uint64_t first_step);

/// Returns the run's checkpoint with the highest step below `before`, among checkpoints in `roots` that `accepts`
/// accepts; nothing if there is none. Unreadable folders do not count.
[[nodiscard]] std::optional<std::filesystem::path> checkpoint_before(
    std::span<const std::filesystem::path> roots, const std::string& run, std::uint64_t before,
    const std::function<bool(const Manifest&)>& accepts);

/// Commits a checkpoint's state again as the newest in `store`, after `change` has changed its manifest. Returns its
/// path.
[[nodiscard]] Result<std::filesystem::path> branch_checkpoint(const std::filesystem::path& checkpoint,
                                                              const CheckpointStore& store,
                                                              const std::function<void(Manifest&)>& change);

}  // namespace maestro
