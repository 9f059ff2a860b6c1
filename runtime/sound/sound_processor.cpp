// SPDX-License-Identifier: Apache-2.0
#include "runtime/sound/sound_processor.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "runtime/files/checksum.hpp"

namespace maestro {

namespace {

constexpr std::int64_t frames_per_row = 2;

std::int64_t encoder_rows_of(std::int64_t frames) {
  return (frames + frames_per_row - 1) / frames_per_row;
}

/// Returns the frames that the rows read: two after the last row's.
std::int64_t frames_read(std::int64_t rows) {
  return frames_per_row * rows + 1;
}

Error refused(const std::string& reason) {
  return {ErrorCode::invalid_argument, reason};
}

/// Returns seconds with two digits after the point.
std::string in_seconds(std::int64_t samples, std::int64_t rate) {
  char text[32];
  const double seconds = static_cast<double>(samples) / static_cast<double>(rate);
  return {text, std::to_chars(text, text + sizeof text, seconds, std::chars_format::fixed, 2).ptr};
}

const SoundSettings& agreed(const SoundSettings& settings, const SoundGrid& grid) {
  if (settings.mels != grid.mels) {
    throw JobError(settings.origin + ": feature_size is " + std::to_string(settings.mels) +
                   ", but the model takes frames of " + std::to_string(grid.mels) + " bands (num_mel_bins)");
  }
  if (grid.chunk_rows > 0 || settings.clip_frames() == grid.positions * frames_per_row) return settings;
  throw JobError(settings.origin + ": a clip of " + std::to_string(settings.seconds) + " s has " +
                 std::to_string(settings.clip_frames()) + " frames, but the model takes " +
                 std::to_string(grid.positions * frames_per_row) + " (twice max_source_positions)");
}

}  // namespace

SoundProcessor::SoundProcessor(SoundSettings settings, SoundGrid grid)
    : settings_(agreed(settings, grid)), grid_(grid), log_mel_(settings_) {}

Result<ImagePlan> SoundProcessor::plan(const SoundFormat& format) const {
  const std::string rate = std::to_string(settings_.rate);
  if (format.rate != settings_.rate) {
    return refused("a sound with " + std::to_string(format.rate) + " samples per second; the model takes " + rate +
                   ", convert it: ffmpeg -i FILE -ar " + rate + " NEW.wav");
  }
  if (format.samples > settings_.clip_samples() && !grid_.whole_clips) {
    return refused("a sound of " + in_seconds(format.samples, format.rate) + " s; the model takes up to " +
                   std::to_string(settings_.seconds) + " s, cut it: ffmpeg -i FILE -t " +
                   std::to_string(settings_.seconds) + " NEW.wav");
  }
  ImagePlan plan;
  plan.modality = Modality::sound;
  plan.source = {format.samples, format.rate};
  const std::int64_t clips =
      grid_.chunk_rows == 0
          ? clips_of(format.samples)
          : (frames_of(format.samples) + frames_per_row * grid_.chunk_rows - 1) / (frames_per_row * grid_.chunk_rows);
  const std::int64_t length =
      grid_.chunk_rows == 0 ? settings_.clip_samples() : frames_per_row * grid_.chunk_rows * settings_.hop;
  for (std::int64_t clip = 0; clip < clips; ++clip) {
    const std::int64_t first = clip * length;
    plan.tiles.push_back({0, first, 0, {std::min(format.samples - first, length), format.rate}});
  }
  plan.encoder_rows = grid_.whole_clips ? clips * grid_.positions : encoder_rows_of(frames_of(format.samples));
  plan.visual_rows = plan.encoder_rows / grid_.join;
  if (plan.visual_rows > 0) return plan;
  const std::int64_t least = grid_.whole_clips ? 1 : frames_per_row * (grid_.join - 1) * settings_.hop + 1;
  return refused("a sound of " + std::to_string(format.samples) + " samples is too short: the model takes at least " +
                 std::to_string(least));
}

MelFrames SoundProcessor::frames(const Sound& sound) const {
  const SoundFormat format{sound.rate, 1, std::ssize(sound.samples)};
  if (const auto known = plan(format); !known) throw std::invalid_argument(known.error().message);
  const std::int64_t clips = clips_of(format.samples);
  if (grid_.whole_clips) return log_mel_.frames(sound.samples, clips * settings_.clip_frames(), clips);
  if (grid_.chunk_rows > 0) return log_mel_.frames(sound.samples, frames_of(format.samples));
  return log_mel_.frames(sound.samples, frames_read(encoder_rows_of(frames_of(format.samples))));
}

bool SoundProcessor::reads(std::int64_t rows, std::int64_t frames) const {
  if (grid_.chunk_rows > 0) return encoder_rows_of(frames) == rows;
  return frames == (grid_.whole_clips ? frames_per_row * rows : std::min(frames_read(rows), settings_.clip_frames()));
}

void SoundProcessor::rows(const MelFrames& frames, std::span<float> pixels, std::span<std::int32_t> places) const {
  const auto mels = static_cast<std::size_t>(settings_.mels);
  const std::int64_t count = std::ssize(places) / 3;
  const bool fits = frames.mels == settings_.mels && std::ssize(places) == count * 3 &&
                    std::ssize(pixels) == count * columns() && reads(count, frames.frames());
  if (!fits) {
    throw std::invalid_argument(std::to_string(frames.frames()) + " frames do not fit " + std::to_string(count) +
                                " rows");
  }
  float* to = pixels.data();
  for (std::int64_t number = 0; number < count; ++number) {
    const std::int64_t clip = number / tile_rows(), row = number % tile_rows();
    const std::int64_t first = clip * frames_per_row * tile_rows();
    const std::int64_t end = std::min(first + frames_per_row * tile_rows(), frames.frames());
    for (std::int64_t window = 0; window < row_windows; ++window) {
      const std::int64_t middle = first + frames_per_row * row - 1 + window;
      for (std::size_t band = 0; band < mels; ++band) {
        for (std::int64_t frame = middle - 1; frame < middle - 1 + kernel_frames; ++frame) {
          const bool inside = middle >= first && middle < end && frame >= first && frame < end;
          *to++ = inside ? frames.values[static_cast<std::size_t>(frame) * mels + band] : 0.0F;
        }
      }
    }
    const std::size_t place = static_cast<std::size_t>(number) * 3;
    places[place] = static_cast<std::int32_t>(clip);
    places[place + 1] = static_cast<std::int32_t>(row);
    places[place + 2] = first + frames_per_row * row + 1 < end ? 0 : 1;
  }
}

std::string SoundProcessor::fingerprint() const {
  char padding[32];
  std::string text = "sound";
  for (const std::int64_t value : {settings_.mels, settings_.rate, settings_.hop, settings_.window, settings_.seconds,
                                   grid_.positions, grid_.join, std::int64_t{grid_.whole_clips}}) {
    text += " " + std::to_string(value);
  }
  if (grid_.chunk_rows > 0) text += " chunks of " + std::to_string(grid_.chunk_rows);
  text += " " +
          std::string(padding,
                      std::to_chars(padding, padding + sizeof padding, settings_.padding, std::chars_format::hex).ptr);
  return checksum_of(text);
}

}  // namespace maestro
