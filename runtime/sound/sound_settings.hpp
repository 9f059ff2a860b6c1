// SPDX-License-Identifier: Apache-2.0
// Settings for the sounds of a model: frames of mel bands, and how an encoder turns them into rows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/core/result.hpp"

namespace maestro {

/// The settings of transformers' WhisperFeatureExtractor.
struct SoundSettings {
  std::string origin;         ///< file, for messages
  std::int64_t mels = 80;     ///< bands of a frame
  std::int64_t rate = 16000;  ///< samples per second
  std::int64_t hop = 160;     ///< samples from a frame to the next one
  std::int64_t window = 400;  ///< samples of a frame
  std::int64_t seconds = 30;  ///< length of a clip
  double padding = 0;         ///< samples after the sound's end

  [[nodiscard]] std::int64_t clip_samples() const { return seconds * rate; }
  [[nodiscard]] std::int64_t clip_frames() const { return clip_samples() / hop; }
};

/// How a model turns frames into rows: two frames are an encoder's row.
struct SoundGrid {
  std::int64_t mels = 80;
  std::int64_t positions = 1500;  ///< rows of the encoder for a clip
  std::int64_t join = 2;          ///< rows of the encoder that become one of the decoder
  bool whole_clips = false;       ///< a sound is padded to complete clips, with all their rows; else it is one clip
  std::int64_t chunk_rows = 0;    ///< rows of the encoder after which a clip is cut, without padding; 0: it is not
};

/// Reads the settings of a folder: processor_config.json if it has feature_extractor, else preprocessor_config.json.
/// Absent and null keys have the defaults of the class in transformers. Errors (invalid_argument, not_found) name file
/// and key: no such file, another class, a value or a key that is not supported.
[[nodiscard]] Result<SoundSettings> read_sound_settings(const std::filesystem::path& folder);
/// Reads the config.json of a folder with a model that hears. Errors as parse_vision_part.
[[nodiscard]] Result<SoundGrid> read_sound_grid(const std::filesystem::path& folder);

}  // namespace maestro
