// SPDX-License-Identifier: Apache-2.0
// checkpoint.json: the content of a checkpoint and the run's state.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

inline constexpr std::string_view manifest_file = "checkpoint.json";
inline constexpr std::string_view run_file = "run.json";  ///< name in the run's folder, next to `checkpoints`

struct FileRecord {
  std::string path;  ///< path relative to the checkpoint's folder, with '/'
  std::uint64_t bytes = 0;
  std::string checksum;  ///< XXH3-128, 32 hexadecimal digits
  friend bool operator==(const FileRecord&, const FileRecord&) = default;
};

/// The run of a checkpoint. A run that continues with --resume keeps all three values.
struct RunIdentity {
  std::string id;       ///< random id of the run; empty in checkpoints from older versions
  std::string job;      ///< name of the job
  std::string started;  ///< "2026-11-22 14:30:00 UTC"
  friend bool operator==(const RunIdentity&, const RunIdentity&) = default;
};

/// Returns the text of run.json: {"run_id": ..., "job": ..., "started": ...}.
[[nodiscard]] std::string run_identity_text(const RunIdentity& run);
/// Reads run.json. Errors (corrupt) name the file.
[[nodiscard]] Result<RunIdentity> read_run_identity(const std::filesystem::path& file);
/// Returns whether the text is 16 lower-case hexadecimal digits.
[[nodiscard]] bool is_run_id(std::string_view text);

struct Manifest {
  RunIdentity run;
  std::map<std::string, std::string> data;      ///< fingerprints of the training data, by name (actors/start_point)
  std::map<std::string, std::string> settings;  ///< settings of the job, by key
  std::map<std::string, std::string> dtypes;    ///< dtype of a section's initial weights, by section: "bf16"
  std::uint64_t step = 0;                       ///< optimizer steps done
  std::uint64_t stage = 0;                      ///< number of the stage that did the step, from 1; 0 without [[stages]]
  std::map<std::string, std::uint64_t> ahead;   ///< optimizer steps of sections that have done more, by section
  std::uint64_t seed = 0;
  std::uint64_t data_position = 0;                   ///< next position of the sampler
  std::vector<std::array<std::uint64_t, 2>> cursor;  ///< DataCursor::segments(); empty: the run left nothing out
  std::uint64_t epoch = 0;                           ///< epoch of the data
  std::vector<std::uint64_t> random_state;           ///< values defined by the writer, e.g. key and draws of a Random
  std::vector<FileRecord> files;
  std::uint64_t sequence = 0;   ///< order of commits in a folder, set by the store: steps may be repeated
  std::string maestro_version;  ///< version of the writer, set by the store

  /// Returns the names of the files' folders, in order of first mention.
  [[nodiscard]] std::vector<std::string> sections() const;
};

/// Returns the key in Manifest::data for the fingerprint of a section's frozen weights.
[[nodiscard]] inline std::string weights_key(std::string_view section) {
  return "weights of section '" + std::string(section) + "'";
}

/// Returns JSON text that contains its checksum.
[[nodiscard]] std::string manifest_text(const Manifest& manifest);
/// Parses checkpoint.json. Errors (corrupt; invalid_argument for a newer format) name `where` and the key.
[[nodiscard]] Result<Manifest> parse_manifest(std::string_view text, std::string_view where);
/// Reads <checkpoint>/checkpoint.json.
[[nodiscard]] Result<Manifest> load_manifest(const std::filesystem::path& checkpoint);

}  // namespace maestro
