// SPDX-License-Identifier: Apache-2.0
#include "runtime/sound/log_mel.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

namespace maestro {

namespace {

// Slaney's scale: linear up to 1000 Hz, then 27 mels for each factor of 6.4.
constexpr double linear_hertz = 1000, linear_mels = 15, mels_per_hertz = 3.0 / 200, log_mels = 27, log_factor = 6.4;

double mel_of(double hertz) {
  if (hertz < linear_hertz) return hertz * mels_per_hertz;
  return linear_mels + std::log(hertz / linear_hertz) * (log_mels / std::log(log_factor));
}
double hertz_of(double mel) {
  if (mel < linear_mels) return mel / mels_per_hertz;
  return linear_hertz * std::exp((mel - linear_mels) * (std::log(log_factor) / log_mels));
}

/// Returns the bounds of the bands: band b begins at bound b, is highest at the next one, and ends at the one after.
std::vector<double> bounds_of(std::int64_t bands) {
  constexpr double highest = 8000;  // Hz
  const double top = mel_of(highest);
  std::vector<double> bounds;
  for (std::int64_t at = 0; at < bands + 2; ++at) {
    bounds.push_back(hertz_of(top * static_cast<double>(at) / static_cast<double>(bands + 1)));
  }
  return bounds;
}

/// Returns the weight of a frequency in a band, which has the area 1.
double weight_of(double hertz, const double* bound) {
  const double up = (hertz - bound[0]) / (bound[1] - bound[0]), down = (bound[2] - hertz) / (bound[2] - bound[1]);
  return std::max(0.0, std::min(up, down)) * 2.0 / (bound[2] - bound[0]);
}

/// Returns the number of a sample in a clip whose ends are mirrored, without the last sample twice.
std::int64_t mirrored(std::int64_t at, std::int64_t count) {
  if (at < 0) return -at;
  return at < count ? at : 2 * count - 2 - at;
}

}  // namespace

LogMel::LogMel(const SoundSettings& settings)
    : settings_(settings), fourier_(static_cast<std::size_t>(settings.window)) {
  for (std::int64_t at = 0; at < settings.window; ++at) {  // Hann's, periodic
    window_.push_back(
        0.5 - 0.5 * std::cos(2.0 * std::numbers::pi * static_cast<double>(at) / static_cast<double>(settings.window)));
  }
  const std::vector<double> bounds = bounds_of(settings.mels);
  const std::int64_t frequencies = settings.window / 2 + 1;
  for (std::size_t band = 0; band < static_cast<std::size_t>(settings.mels); ++band) {
    Band made;
    for (std::int64_t at = 0; at < frequencies; ++at) {
      const double hertz =
          static_cast<double>(at) * static_cast<double>(settings.rate / 2) / static_cast<double>(frequencies - 1);
      const double weight = weight_of(hertz, bounds.data() + band);
      if (weight <= 0) continue;
      if (made.weights.empty()) made.first = static_cast<std::size_t>(at);
      made.weights.push_back(weight);
    }
    bands_.push_back(std::move(made));
  }
}

MelFrames LogMel::frames(std::span<const float> samples, std::int64_t frames, std::int64_t clips) const {
  constexpr double floor = 1e-10, range = 8;  // of the power, and of its logarithm
  const std::int64_t whole = clips * settings_.clip_samples(), half = settings_.window / 2;
  const auto width = static_cast<std::size_t>(settings_.window);
  const auto sample = [&](std::int64_t frame, std::size_t at) {
    const std::int64_t place = mirrored(frame * settings_.hop - half + static_cast<std::int64_t>(at), whole);
    const double value =
        place < std::ssize(samples) ? static_cast<double>(samples[static_cast<std::size_t>(place)]) : settings_.padding;
    return value * window_[at];
  };
  const auto mels = static_cast<std::size_t>(settings_.mels);
  // Frames without a sample have the lowest value, which is never the largest.
  const std::int64_t reached = (std::ssize(samples) + half + settings_.hop - 1) / settings_.hop;
  const std::int64_t all = clips * settings_.clip_frames();
  const std::int64_t computed = settings_.padding != 0 ? all : std::min(all, std::max(frames, reached));
  std::vector<double> logs(static_cast<std::size_t>(computed) * mels, std::log10(floor));
  std::vector<std::complex<double>> two(width), found(width);
  std::vector<double> power(width / 2 + 1);
  const auto add_bands = [&](std::int64_t frame) {
    for (std::size_t band = 0; band < mels; ++band) {
      double sum = 0;
      for (std::size_t at = 0; at < bands_[band].weights.size(); ++at) {
        sum += bands_[band].weights[at] * power[bands_[band].first + at];
      }
      logs[static_cast<std::size_t>(frame) * mels + band] = std::log10(std::max(sum, floor));
    }
  };
  for (std::int64_t frame = 0; frame < computed; frame += 2) {  // two real frames are one complex one
    for (std::size_t at = 0; at < width; ++at) {
      two[at] = {sample(frame, at), frame + 1 < computed ? sample(frame + 1, at) : 0.0};
    }
    fourier_.transform(two, found);
    for (const bool second : {false, true}) {
      if (frame + static_cast<std::int64_t>(second) >= computed) continue;
      for (std::size_t at = 0; at < power.size(); ++at) {
        const std::complex<double> other = std::conj(found[(width - at) % width]);
        power[at] = std::norm(second ? found[at] - other : found[at] + other) / 4;
      }
      add_bands(frame + static_cast<std::int64_t>(second));
    }
  }
  double least = -range + std::log10(floor);
  for (const double value : logs) least = std::max(least, value - range);
  MelFrames made{settings_.mels, std::vector<float>(static_cast<std::size_t>(std::min(frames, all)) * mels)};
  std::transform(logs.begin(), logs.begin() + std::ssize(made.values), made.values.begin(),
                 [&](double value) { return static_cast<float>((std::max(value, least) + 4.0) / 4.0); });
  return made;
}

}  // namespace maestro
