// SPDX-License-Identifier: Apache-2.0
// The sound settings of a model folder, applied: from samples to the rows of the encoder.
//
// OS-1 (features): frames equal transformers' WhisperFeatureExtractor's to 1e-5; frames after a sound's end are frames
//       of the padded clip.
// OS-2 (rows): row r has all frames that the encoder's two convolutions read for it, so that it needs no other row.
//       Frames outside of the clip are zeros, and so is the first window of row 0, which lies outside.
// OS-3 (nothing cut): a sound with another rate, or longer than a clip, is refused. If the model uses all rows of
//       clips, a longer sound is several clips, one tile each: the padded sound's frames, divided; a clip's rows read
//       no frame of another clip.
// OS-4 (chunks): if the model cuts a sound into chunks, a chunk is a tile: its rows read no frame of another chunk, and
//       nothing after the sound's end.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/images/image_plan.hpp"
#include "runtime/sound/log_mel.hpp"
#include "runtime/sound/sound.hpp"
#include "runtime/sound/sound_settings.hpp"

namespace maestro {

/// Frames that a convolution reads for a row, and their windows in an encoder's row.
inline constexpr std::int64_t kernel_frames = 3, row_windows = 3;
/// Returns the columns of a row for frames of `mels` bands.
[[nodiscard]] constexpr std::int64_t sound_columns(std::int64_t mels) {
  return row_windows * kernel_frames * mels;
}

/// Immutable; any thread.
class SoundProcessor {
 public:
  /// Throws JobError if settings and model disagree about bands, or about a clip's rows.
  SoundProcessor(SoundSettings settings, SoundGrid grid);

  /// Returns the numbers of rows of a sound, with a tile for each clip. `source` of the plan has the samples as its
  /// width and the rate as its height. Errors (invalid_argument) state the reason: OS-3, or too short for a row of the
  /// decoder.
  [[nodiscard]] Result<ImagePlan> plan(const SoundFormat& format) const;
  /// Returns the frames that a sound's rows read: up to two frames after its end, or all of its clips. Throws
  /// std::invalid_argument for a sound without a plan.
  [[nodiscard]] MelFrames frames(const Sound& sound) const;
  /// Writes the rows of a sound: pixels (R, 9 mels), for each of the windows around the frames 2r - 1, 2r, 2r + 1 its
  /// three frames in the order (band, frame), and places (R, 3) = (clip, r, 0), or (clip, r, 1) for a row whose last
  /// window lies after the sound's end (OS-4). Throws std::invalid_argument if the
  /// spans have another size.
  void rows(const MelFrames& frames, std::span<float> pixels, std::span<std::int32_t> places) const;

  [[nodiscard]] std::int64_t columns() const { return sound_columns(settings_.mels); }
  [[nodiscard]] const SoundSettings& settings() const { return settings_; }
  [[nodiscard]] const SoundGrid& grid() const { return grid_; }
  /// Returns 32 hexadecimal digits over all settings. Objects with equal fingerprints give equal rows.
  [[nodiscard]] std::string fingerprint() const;

 private:
  [[nodiscard]] std::int64_t frames_of(std::int64_t samples) const {
    return (samples + settings_.hop - 1) / settings_.hop;
  }
  [[nodiscard]] std::int64_t clips_of(std::int64_t samples) const {
    return grid_.whole_clips ? (samples + settings_.clip_samples() - 1) / settings_.clip_samples() : 1;
  }
  /// Returns the rows of a tile, at most.
  [[nodiscard]] std::int64_t tile_rows() const { return grid_.chunk_rows > 0 ? grid_.chunk_rows : grid_.positions; }
  /// Returns whether this is the number of frames that `rows` rows read.
  [[nodiscard]] bool reads(std::int64_t rows, std::int64_t frames) const;

  SoundSettings settings_;
  SoundGrid grid_;
  LogMel log_mel_;
};

}  // namespace maestro
