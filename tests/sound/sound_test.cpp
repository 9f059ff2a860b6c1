// SPDX-License-Identifier: Apache-2.0
#include "runtime/sound/sound.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/temp_folder.hpp"
#include "tests/sound/sound_bytes.hpp"
#include "tests/support/one_line.hpp"

namespace maestro {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr SoundFile whole_kinds[] = {SoundFile::wave16, SoundFile::wave24, SoundFile::wave_float,
                                     SoundFile::wave_mu_law, SoundFile::flac};

std::string refusal(const std::string& bytes) {
  const auto sound = read_sound(bytes, "a.wav");
  return sound ? "accepted" : sound.error().message;
}

/// Returns the bytes with a number of four bytes, little-endian, after the first `mark`.
std::string with_size(std::string bytes, const std::string& mark, std::uint32_t size) {
  const std::size_t at = bytes.find(mark) + mark.size();
  for (int byte = 0; byte < 4; ++byte) bytes[at + static_cast<std::size_t>(byte)] = static_cast<char>(size >> 8 * byte);
  return bytes;
}

TEST(Sound, every_kind_has_the_header_and_the_samples_that_were_written) {
  const std::vector<float> wave = made_wave(1000);
  for (const SoundFile kind : whole_kinds) {
    const std::string bytes = sound_bytes(kind, 16000, 1, wave);
    EXPECT_EQ(read_sound_format(bytes, "a").value_or_throw(), (SoundFormat{16000, 1, 1000}));
    const Sound sound = read_sound(bytes, "a").value_or_throw();
    ASSERT_EQ(sound.samples.size(), wave.size());
    const double step = kind == SoundFile::wave_mu_law ? 0.02 : 1.0 / 16384;
    for (std::size_t at = 0; at < wave.size(); ++at) ASSERT_NEAR(sound.samples[at], wave[at], step) << at;
  }
}

TEST(Sound, channels_become_their_mean) {
  for (const SoundFile kind : {SoundFile::wave_float, SoundFile::flac}) {
    const Sound sound =
        read_sound(sound_bytes(kind, 8000, 3, {0.5F, 0.25F, 0.0F, -0.5F, -0.25F, 0.0F}), "a").value_or_throw();
    EXPECT_EQ(sound.rate, 8000);
    EXPECT_EQ(sound.samples, (std::vector<float>{0.25F, -0.25F}));
  }
}

TEST(Sound, a_header_needs_no_samples) {
  for (const SoundFile kind : whole_kinds) {
    const std::string bytes = sound_bytes(kind, 44100, 2, made_wave(4000));
    EXPECT_EQ(read_sound_format(std::string_view(bytes).substr(0, 200), "a").value_or_throw(),
              (SoundFormat{44100, 2, 2000}));
  }
}

TEST(Sound, a_file_on_disk_is_read_as_its_bytes) {
  const TempFolder folder;
  const std::string bytes = sound_bytes(SoundFile::flac, 16000, 1, made_wave(3000));
  folder.write("a.flac", bytes);
  EXPECT_EQ(read_sound(folder.path() / "a.flac").value_or_throw().samples,
            read_sound(bytes, "a").value_or_throw().samples);
  EXPECT_EQ(read_sound_format(folder.path() / "a.flac").value_or_throw().samples, 3000);
  EXPECT_THAT(read_sound(folder.path() / "none.wav").error().message, HasSubstr("none.wav"));
}

TEST(Sound, other_and_damaged_files_are_refused_with_the_reason) {
  const std::string wave = sound_bytes(SoundFile::wave16, 16000, 1, made_wave(1000));
  const std::string flac = sound_bytes(SoundFile::flac, 16000, 1, made_wave(20000));
  const std::pair<std::string, std::string> cases[] = {
      {"", "a.wav: not a sound: neither WAV nor FLAC"},
      {"ID3\x03 a song", "a.wav: not a sound: neither WAV nor FLAC"},
      {wave.substr(0, 30), "a.wav: truncated: it ends before the length of the sound"},
      {wave.substr(0, 1000), "a.wav: truncated: it has 478 of 1000 samples"},
      {flac.substr(0, 20), "a.wav: truncated: it ends before the length of the sound"},
      {sound_bytes(SoundFile::wave_adpcm, 16000, 1, made_wave(1000)),
       "a.wav: a WAV file with samples in format 2, which is not supported; convert it: ffmpeg -i FILE -c:a pcm_s16le "
       "NEW.wav"},
      {with_size(wave, "data", 0xFFFFFFFF),
       "a.wav: its header does not state its length; convert it: ffmpeg -i FILE NEW.wav"},
  };
  for (const auto& [bytes, message] : cases) EXPECT_EQ(refusal(bytes), message);
  EXPECT_THAT(refusal(flac.substr(0, flac.size() / 2)), AllOf(StartsWith("a.wav: "), IsOneLine()));
  EXPECT_TRUE(is_sound(wave));
  EXPECT_TRUE(is_sound(flac));
  EXPECT_FALSE(is_sound("RIFF\x10\x10\x10\x10WEBP"));
}

}  // namespace
}  // namespace maestro
