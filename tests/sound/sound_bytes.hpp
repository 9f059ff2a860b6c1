// SPDX-License-Identifier: Apache-2.0
// Small WAV and FLAC files, written with the library's full interface, and waveforms by formula.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace maestro {

enum class SoundFile : std::uint8_t { wave16, wave24, wave_float, wave_mu_law, wave_adpcm, flac };

/// Returns a file; `samples` (frames, channels) are from -1 to 1.
std::string sound_bytes(SoundFile kind, std::int64_t rate, std::int64_t channels, const std::vector<float>& samples);

/// Returns the waveform of record_sounds.py: two tones with noise, and silence in the middle.
std::vector<float> made_wave(std::int64_t count);

}  // namespace maestro
