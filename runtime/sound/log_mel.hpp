// SPDX-License-Identifier: Apache-2.0
// The logarithm of a sound's power in bands of the mel scale, by frames: the features of Whisper (Radford et al. 2022),
// as transformers' WhisperFeatureExtractor computes them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/sound/fourier.hpp"
#include "runtime/sound/sound_settings.hpp"

namespace maestro {

/// Frames of a clip, (frames, mels).
struct MelFrames {
  std::int64_t mels = 0;
  std::vector<float> values;
  [[nodiscard]] std::int64_t frames() const { return mels == 0 ? 0 : std::ssize(values) / mels; }
};

/// Immutable; any thread.
class LogMel {
 public:
  explicit LogMel(const SoundSettings& settings);

  /// Returns the first `frames` of `clips` clips that begin with `samples` and go on with settings.padding; at most
  /// their number of frames. Computes in f64.
  [[nodiscard]] MelFrames frames(std::span<const float> samples, std::int64_t frames, std::int64_t clips = 1) const;

 private:
  /// A band: weights of consecutive frequencies.
  struct Band {
    std::size_t first = 0;
    std::vector<double> weights;
  };

  SoundSettings settings_;
  std::vector<double> window_;
  std::vector<Band> bands_;
  Fourier fourier_;
};

}  // namespace maestro
