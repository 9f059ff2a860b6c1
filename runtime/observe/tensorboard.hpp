// SPDX-License-Identifier: Apache-2.0
// Scalar curves for TensorBoard: event files of length-delimited, checksummed tf.Event messages. Formats:
// tensorflow/core/util/event.proto, framework/summary.proto, lib/io/record_writer.cc (masked CRC-32C).
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"

namespace maestro {

/// Returns the CRC-32C (Castagnoli, reflected polynomial 0x82f63b78), as in RFC 3720 appendix B.4.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);
/// Returns the rotated and offset CRC of a TFRecord.
[[nodiscard]] std::uint32_t masked_crc32c(std::string_view bytes);
/// Returns u64 length, masked CRC of the length, payload, masked CRC of the payload; little endian.
[[nodiscard]] std::string tf_record(std::string_view payload);

struct ScalarEvent {
  std::string_view tag;  ///< e.g. "student/loss"
  std::int64_t step = 0;
  double value = 0;        ///< stored as a float
  double wall_time_s = 0;  ///< since 1970
};
/// Returns a tf.Event message with a single simple value.
[[nodiscard]] std::string encode_scalar_event(const ScalarEvent& event);
/// Returns the tf.Event that opens every file: file_version = "brain.Event:2".
[[nodiscard]] std::string encode_version_event(double wall_time_s);

/// Returns a tf.Event that makes TensorBoard omit the values from `step` on in earlier files of the folder: a session
/// log with the status START.
[[nodiscard]] std::string encode_start_event(std::int64_t step, double wall_time_s);

/// Appends to an event file. One thread at a time; errors name the file and the reason.
class TensorBoardWriter {
 public:
  /// Opens folder/events.out.tfevents.SECONDS.HOST.PID; creates the folder if missing.
  static Result<TensorBoardWriter> create(const std::filesystem::path& folder, double wall_time_s);

  Status add(const ScalarEvent& event);
  /// Adds encode_start_event(), for a resumed run that repeats steps.
  Status add_start(std::int64_t step, double wall_time_s);
  /// Writes added events to the system, so that TensorBoard sees them. The destructor does so too.
  Status flush();
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  TensorBoardWriter(std::filesystem::path path, std::ofstream file);
  Status write(std::string_view payload);
  [[nodiscard]] Error failure() const;

  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace maestro
