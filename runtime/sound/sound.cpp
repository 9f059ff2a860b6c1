// SPDX-License-Identifier: Apache-2.0
#include "runtime/sound/sound.hpp"

#include <algorithm>
#include <new>

#include "runtime/core/input_file.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/sound/sound_codec.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t largest_sound = std::size_t{4} << 30;  // bytes of a file
constexpr std::size_t first_bytes = std::size_t{1} << 16;    // usually the header
constexpr std::int64_t most_channels = 256;

Error corrupt(const std::string& reason) {
  return {ErrorCode::corrupt, reason};
}
Error truncated() {
  return corrupt("truncated: it ends before the length of the sound");
}

Error about(const std::string& name, const Error& reason) {
  return {reason.code, printable(name) + ": " + reason.message};
}

/// Reads numbers of a few bytes; those after the end are 0.
std::uint64_t little(std::string_view bytes, std::size_t at, std::size_t count) {
  std::uint64_t value = 0;
  for (std::size_t byte = count; byte-- > 0;) {
    value = value << 8 | (at + byte < bytes.size() ? static_cast<unsigned char>(bytes[at + byte]) : 0U);
  }
  return value;
}
std::uint64_t big(std::string_view bytes, std::size_t at, std::size_t count) {
  std::uint64_t value = 0;
  for (std::size_t byte = 0; byte < count; ++byte) {
    value = value << 8 | (at + byte < bytes.size() ? static_cast<unsigned char>(bytes[at + byte]) : 0U);
  }
  return value;
}

bool is_wave(std::string_view start) {
  return start.substr(0, 4) == "RIFF" && start.size() >= 12 && start.substr(8, 4) == "WAVE";
}

/// The chunk "fmt " of a WAV file.
struct WaveFormat {
  std::uint64_t kind = 0;  // wFormatTag
  std::uint64_t channels = 0, rate = 0, block = 0, bits = 0;
};

Result<WaveFormat> wave_format(std::string_view chunk) {
  constexpr std::uint64_t extensible = 0xFFFE;
  WaveFormat format{little(chunk, 0, 2), little(chunk, 2, 2), little(chunk, 4, 4), little(chunk, 12, 2),
                    little(chunk, 14, 2)};
  if (format.kind == extensible) format.kind = little(chunk, 24, 2);  // begin of the sub-format's GUID
  constexpr std::uint64_t pcm = 1, floats = 3, a_law = 6, mu_law = 7;
  const auto kinds = {pcm, floats, a_law, mu_law};
  if (std::ranges::find(kinds, format.kind) == kinds.end()) {
    return Error{ErrorCode::invalid_argument,
                 "a WAV file with samples in format " + std::to_string(format.kind) +
                     ", which is not supported; convert it: ffmpeg -i FILE -c:a pcm_s16le NEW.wav"};
  }
  if (format.block == 0 || format.block != format.channels * (format.bits / 8)) {
    return corrupt("broken: the sizes in its header contradict each other");
  }
  return format;
}

Result<SoundFormat> read_wave(std::string_view start) {
  WaveFormat format;
  for (std::size_t at = 12;; at += 8) {
    if (at + 8 > start.size()) return truncated();
    const std::string_view kind = start.substr(at, 4);
    const std::uint64_t size = little(start, at + 4, 4);
    if (kind == "fmt ") {
      if (at + 8 + std::min<std::uint64_t>(size, 40) > start.size()) return truncated();
      const auto read = wave_format(start.substr(at + 8, size));
      if (!read) return read.error();
      format = *read;
    }
    if (kind == "data") {
      if (format.block == 0) return corrupt("broken: its samples come before their format");
      if (size == 0xFFFFFFFF || size == 0) {
        return corrupt("its header does not state its length; convert it: ffmpeg -i FILE NEW.wav");
      }
      return SoundFormat{static_cast<std::int64_t>(format.rate), static_cast<std::int64_t>(format.channels),
                         static_cast<std::int64_t>(size / format.block)};
    }
    at += size + size % 2;
  }
}

Result<SoundFormat> read_flac(std::string_view start) {
  constexpr std::size_t end = 4 + 4 + 34;  // mark, head and content of STREAMINFO
  if (start.size() < end) return truncated();
  if ((static_cast<unsigned char>(start[4]) & 0x7FU) != 0) return corrupt("broken: it does not begin with STREAMINFO");
  const std::uint64_t packed = big(start, 18, 8);  // 20 bits rate, 3 channels, 5 bits per sample, 36 samples
  const SoundFormat format{static_cast<std::int64_t>(packed >> 44), static_cast<std::int64_t>((packed >> 41 & 7U) + 1),
                           static_cast<std::int64_t>(packed & 0xFFFFFFFFFU)};
  if (format.samples > 0) return format;
  return corrupt("its header does not state its length; convert it: ffmpeg -i FILE NEW.flac");
}

Result<SoundFormat> format_of(std::string_view start) {
  if (!is_sound(start)) return corrupt("not a sound: neither WAV nor FLAC");
  auto format = is_wave(start) ? read_wave(start) : read_flac(start);
  if (!format) return format.error();
  if (format->rate < 1 || format->channels < 1 || format->channels > most_channels) {
    return corrupt("broken: " + std::to_string(format->channels) + " channels with " + std::to_string(format->rate) +
                   " samples per second");
  }
  if (format->samples <= most_sound_samples) return format;
  return Error{ErrorCode::invalid_argument, std::to_string(format->samples) + " samples are more than the limit of " +
                                                std::to_string(most_sound_samples)};
}

/// Returns the first bytes of a file, at most `most`.
Result<std::string> read_start(const fs::path& file, std::size_t most) {
  const auto opened = open_for_reading(file);
  if (!opened) return opened.error();
  std::error_code ignored;
  const std::uintmax_t size = fs::file_size(file, ignored);
  return read_at(*opened, file, 0, ignored ? most : static_cast<std::size_t>(std::min<std::uintmax_t>(size, most)));
}

Result<Sound> decoded(std::string_view bytes) {
  const auto format = format_of(bytes);
  if (!format) return format.error();
  auto samples = decode_samples(bytes, *format);
  if (!samples) return samples.error();
  if (std::ssize(*samples) != format->samples) {
    return corrupt("truncated: it has " + std::to_string(samples->size()) + " of " + std::to_string(format->samples) +
                   " samples");
  }
  return Sound{format->rate, *std::move(samples)};
}

}  // namespace

bool is_sound(std::string_view start) {
  return is_wave(start) || start.substr(0, 4) == "fLaC";
}

Result<SoundFormat> read_sound_format(std::string_view start, const std::string& name) {
  auto format = format_of(start);
  if (!format) return about(name, format.error());
  return format;
}

Result<SoundFormat> read_sound_format(const fs::path& file) {
  const auto start = read_start(file, first_bytes);
  if (!start) return start.error();
  auto format = format_of(*start);
  if (format) return format;
  if (start->size() < first_bytes || !is_sound(*start)) return about(file.string(), format.error());
  const auto whole = read_start(file, largest_sound);  // a header with a long list before the samples
  if (!whole) return whole.error();
  return read_sound_format(*whole, file.string());
}

Result<Sound> read_sound(std::string_view bytes, const std::string& name) {
  try {
    auto sound = decoded(bytes);
    if (!sound) return about(name, sound.error());
    return sound;
  } catch (const std::bad_alloc&) {  // only this file fails; others may fit
    return about(name, {ErrorCode::unavailable, "cannot be decoded: out of memory"});
  }
}

Result<Sound> read_sound(const fs::path& file) {
  const auto bytes = read_start(file, largest_sound);
  if (!bytes) return bytes.error();
  return read_sound(*bytes, file.string());
}

}  // namespace maestro
