// SPDX-License-Identifier: Apache-2.0
#include "runtime/sound/sound_processor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numbers>

#include "runtime/files/safetensors.hpp"
#include "tests/sound/sound_bytes.hpp"
#include "tests/support/one_line.hpp"

namespace maestro {
namespace {

using ::testing::HasSubstr;

/// A recorded case: settings, a waveform, and the frames of transformers.
struct Case {
  SoundProcessor processor;
  Sound sound;
  std::int64_t length = 0;  ///< frames of the sound
  std::int64_t clips = 0;   ///< 0: the model does not take whole clips
  ConstTensor frames;
};

SoundProcessor processor_of(std::int64_t mels, std::int64_t window, std::int64_t hop, std::int64_t seconds,
                            bool whole_clips = false) {
  SoundSettings settings;
  settings.origin = "preprocessor_config.json";
  settings.mels = mels;
  settings.window = window;
  settings.hop = hop;
  settings.seconds = seconds;
  return {settings, {mels, settings.clip_frames() / 2, 2, whole_clips}};
}

const SafetensorsFile& recorded() {
  static const auto file =
      SafetensorsFile::open(std::filesystem::path(MAESTRO_SOURCE_DIR) / "tests/sound/expected.safetensors")
          .value_or_throw();
  return file;
}

Case recorded_case(std::size_t number) {
  const std::string end = "." + std::to_string(number);
  const auto settings = recorded().tensor("settings" + end).value_or_throw().span<std::int32_t>();
  return {processor_of(settings[0], settings[1], settings[2], settings[3], settings[6] > 0),
          {16000, made_wave(settings[4])},
          settings[5],
          settings[6],
          recorded().tensor("frames" + end).value_or_throw()};
}

/// Returns the encoder's rows of a case.
std::int64_t rows_of(const Case& made) {
  return made.clips > 0 ? made.clips * made.processor.grid().positions : (made.length - 1) / 2 + 1;
}

constexpr std::size_t cases = 7;

TEST(SoundProcessor, frames_are_those_of_transformers) {  // OS-1
  for (std::size_t number = 0; number < cases; ++number) {
    const Case made = recorded_case(number);
    const MelFrames frames = made.processor.frames(made.sound);
    ASSERT_EQ(frames.frames(), made.frames.rows()) << number;
    const auto expected = made.frames.span<float>();
    for (std::size_t at = 0; at < frames.values.size(); ++at) {
      ASSERT_NEAR(frames.values[at], expected[at], 1e-5) << number << ": " << at;
    }
  }
}

TEST(SoundProcessor, plans_count_as_the_attention_mask_of_transformers) {
  for (std::size_t number = 0; number < cases; ++number) {
    const Case made = recorded_case(number);
    const auto plan = made.processor.plan({16000, 1, std::ssize(made.sound.samples)}).value_or_throw();
    EXPECT_EQ(plan.encoder_rows, rows_of(made));
    EXPECT_EQ(plan.visual_rows, (plan.encoder_rows - 2) / 2 + 1);
    EXPECT_EQ(std::ssize(plan.tiles), std::max<std::int64_t>(made.clips, 1));
  }
}

TEST(SoundProcessor, rows_hold_the_frames_of_three_windows) {  // OS-2
  for (std::size_t number = 0; number < cases; ++number) {
    const Case made = recorded_case(number);
    const MelFrames frames = made.processor.frames(made.sound);
    const std::int64_t rows = rows_of(made), mels = frames.mels, clip_rows = made.processor.grid().positions;
    const std::int64_t clip_frames = made.processor.settings().clip_frames();
    std::vector<float> pixels(static_cast<std::size_t>(rows * made.processor.columns()), 7.0F);
    std::vector<std::int32_t> places(static_cast<std::size_t>(rows * 3), 7);
    made.processor.rows(frames, pixels, places);
    for (std::int64_t row = 0; row < rows; ++row) {
      EXPECT_EQ(places[static_cast<std::size_t>(row * 3)], row / clip_rows);
      EXPECT_EQ(places[static_cast<std::size_t>(row * 3 + 1)], row % clip_rows);
      for (std::int64_t window = 0; window < 3; ++window) {
        for (std::int64_t band = 0; band < mels; ++band) {
          for (std::int64_t offset = 0; offset < 3; ++offset) {
            const std::int64_t middle = 2 * (row % clip_rows) - 1 + window, frame = middle - 1 + offset;
            const bool inside = middle >= 0 && frame >= 0 && frame < clip_frames;
            const std::int64_t all = row / clip_rows * clip_frames + frame;
            const float expected = inside ? frames.values[static_cast<std::size_t>(all * mels + band)] : 0.0F;
            const auto at = static_cast<std::size_t>(((row * 3 + window) * mels + band) * 3 + offset);
            ASSERT_EQ(pixels[at], expected) << number << ": " << row << ", " << window << ", " << band;
          }
        }
      }
    }
    EXPECT_THROW(made.processor.rows(frames, std::span(pixels).subspan(1), places), std::invalid_argument);
  }
}

TEST(SoundProcessor, other_rates_and_lengths_are_refused_with_the_remedy) {  // OS-3
  const SoundProcessor processor = processor_of(80, 400, 160, 30);
  const auto refusal = [&](const SoundFormat& format) {
    const auto plan = processor.plan(format);
    return plan ? "accepted" : plan.error().message;
  };
  EXPECT_EQ(
      refusal({44100, 2, 44100}),
      "a sound with 44100 samples per second; the model takes 16000, convert it: ffmpeg -i FILE -ar 16000 NEW.wav");
  EXPECT_EQ(refusal({16000, 1, 480001}),
            "a sound of 30.00 s; the model takes up to 30 s, cut it: ffmpeg -i FILE -t 30 NEW.wav");
  EXPECT_EQ(refusal({16000, 1, 480000}), "accepted");
  EXPECT_EQ(refusal({16000, 1, 320}), "a sound of 320 samples is too short: the model takes at least 321");
  EXPECT_EQ(refusal({16000, 1, 321}), "accepted");
}

TEST(SoundProcessor, settings_that_contradict_the_model_are_refused) {
  SoundSettings settings;
  settings.origin = "preprocessor_config.json";
  const auto refusal = [&](const SoundGrid& grid) {
    try {
      const SoundProcessor processor(settings, grid);
    } catch (const JobError& error) {
      EXPECT_THAT(std::string(error.what()), IsOneLine());
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal({80, 1500, 2}), "accepted");
  EXPECT_THAT(refusal({128, 1500, 2}), HasSubstr("feature_size is 80, but the model takes frames of 128 bands"));
  EXPECT_THAT(refusal({80, 750, 2}), HasSubstr("a clip of 30 s has 3000 frames, but the model takes 1500"));
}

TEST(SoundProcessor, fingerprints_tell_settings_apart) {
  EXPECT_EQ(processor_of(80, 400, 160, 30).fingerprint(), processor_of(80, 400, 160, 30).fingerprint());
  EXPECT_NE(processor_of(80, 400, 160, 30).fingerprint(), processor_of(80, 512, 160, 30).fingerprint());
  EXPECT_NE(processor_of(80, 400, 160, 30).fingerprint(), processor_of(80, 400, 160, 30, true).fingerprint());
}

TEST(Fourier, transforms_of_every_length_are_their_sums) {
  for (const std::size_t length : {1U, 2U, 7U, 12U, 60U, 400U}) {
    const Fourier fourier(length);
    std::vector<std::complex<double>> from(length), to(length);
    for (std::size_t at = 0; at < length; ++at) from[at] = {std::sin(0.7 * static_cast<double>(at)), 0.1};
    fourier.transform(from, to);
    for (std::size_t k = 0; k < length; ++k) {
      std::complex<double> sum = 0;
      for (std::size_t at = 0; at < length; ++at) {
        sum += from[at] * std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(k * at % length) /
                                              static_cast<double>(length));
      }
      ASSERT_LT(std::abs(to[k] - sum), 1e-11 * static_cast<double>(length)) << length << ": " << k;
    }
  }
}

}  // namespace
}  // namespace maestro
