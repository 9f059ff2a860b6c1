// SPDX-License-Identifier: Apache-2.0
// Sounds from files: WAV and FLAC, distinguished by content, never by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

/// Most samples of a sound that is read: a day at 48 kHz. A sample takes 4 bytes.
inline constexpr std::int64_t most_sound_samples = std::int64_t{24} * 3600 * 48000;

/// What the header of a sound's file states.
struct SoundFormat {
  std::int64_t rate = 0;  ///< samples per second
  std::int64_t channels = 0;
  std::int64_t samples = 0;  ///< samples per channel
  friend bool operator==(const SoundFormat&, const SoundFormat&) = default;
};

/// A sound with one channel; samples are from -1 to 1.
struct Sound {
  std::int64_t rate = 0;  ///< samples per second
  std::vector<float> samples;
};

/// Returns whether a file that begins with `start` is a WAV or FLAC file, complete or not.
[[nodiscard]] bool is_sound(std::string_view start);

/// Reads the header of a file that begins with `start`: WAV with uncompressed samples, FLAC. Samples are not read and
/// may be missing. The error (corrupt, invalid_argument) begins with `name`: not a sound, a header that ends before the
/// length or does not state it, compressed samples, too long.
[[nodiscard]] Result<SoundFormat> read_sound_format(std::string_view start, const std::string& name);
/// Reads the header of a file.
[[nodiscard]] Result<SoundFormat> read_sound_format(const std::filesystem::path& file);

/// Decodes a file's bytes. Several channels become their mean, in f32, as in librosa. Returns the same errors as
/// read_sound_format(), and: truncated or damaged samples, the library's message, a build without the library
/// (unavailable). Any thread.
[[nodiscard]] Result<Sound> read_sound(std::string_view bytes, const std::string& name);
/// Decodes a file.
[[nodiscard]] Result<Sound> read_sound(const std::filesystem::path& file);

}  // namespace maestro
