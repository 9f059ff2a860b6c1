// SPDX-License-Identifier: Apache-2.0
// Checkpoints that are kept for ever, and checkpoints that a run goes back to.
//
// AC-1 (whole or absent): a folder of the archive under its final name is whole, whenever the machine stops.
// AC-2 (own files): what becomes of a checkpoint's folder after keep() changes nothing in the archive. Files are hard
//       links where the file system has them, copies elsewhere; files of a checkpoint are never changed in place.
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

inline constexpr const char* archive_folder = "archive";  ///< in the run's folder

enum class ArchiveForm : std::uint8_t {
  full,  ///< the whole checkpoint, from which a run goes on
  bf16   ///< a Hugging Face folder of each trained section, its weights as BF16, and run.json
};

/// Thread-safe as long as calls of keep() do not overlap.
class CheckpointArchive {
 public:
  explicit CheckpointArchive(std::filesystem::path root, OperationHook after = {})
      : root_(std::move(root)), after_(std::move(after)) {}
  /// Keeps a checkpoint as <root>/step-N and returns that path. Replaces what the run has kept of the same step; of
  /// another run it is refused. Errors are those of the files, and name them.
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

/// Returns the name of the folder of a spike, in the archive's: "spike-00000200".
[[nodiscard]] std::string spike_folder_name(std::uint64_t first_step);

/// Returns the checkpoint of the run with the highest step below `before`, of those in `roots` that `accepts` takes;
/// nothing if there is none. Folders that cannot be read do not count.
[[nodiscard]] std::optional<std::filesystem::path> checkpoint_before(
    std::span<const std::filesystem::path> roots, const std::string& run, std::uint64_t before,
    const std::function<bool(const Manifest&)>& accepts);

/// Commits the state of a checkpoint once more, as the newest of `store`, with `change` made to its manifest. Returns
/// its path.
[[nodiscard]] Result<std::filesystem::path> branch_checkpoint(const std::filesystem::path& checkpoint,
                                                              const CheckpointStore& store,
                                                              const std::function<void(Manifest&)>& change);

}  // namespace maestro
