// SPDX-License-Identifier: Apache-2.0
#include "runtime/sound/sound_settings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

using Json = nlohmann::json;

/// The file of Qwen2-Audio on the hub.
const Json hub = {{"chunk_length", 30},
                  {"feature_extractor_type", "WhisperFeatureExtractor"},
                  {"feature_size", 128},
                  {"hop_length", 160},
                  {"n_fft", 400},
                  {"n_samples", 480000},
                  {"nb_max_frames", 3000},
                  {"padding_side", "right"},
                  {"padding_value", 0.0},
                  {"processor_class", "Qwen2AudioProcessor"},
                  {"return_attention_mask", true},
                  {"sampling_rate", 16000}};

Result<SoundSettings> settings_of(const Json& file, const char* name = "preprocessor_config.json") {
  const TempFolder folder;
  folder.write(name, file.dump());
  return read_sound_settings(folder.path());
}

std::string refusal(const Json& change) {
  Json file = hub;
  file.update(change);
  const auto read = settings_of(file);
  return read ? "accepted" : read.error().message.substr(read.error().message.find(".json: ") + 7);
}

TEST(SoundSettings, both_files_of_a_folder_are_read) {
  const SoundSettings own = settings_of(hub).value_or_throw();
  EXPECT_EQ(own.mels, 128);
  EXPECT_EQ(own.clip_samples(), 480000);
  EXPECT_EQ(own.clip_frames(), 3000);
  const Json nested = {{"audio_token", "<|AUDIO|>"}, {"feature_extractor", hub}};
  EXPECT_EQ(settings_of(nested, "processor_config.json").value_or_throw().mels, 128);
  EXPECT_EQ(settings_of({{"feature_extractor_type", "WhisperFeatureExtractor"}}).value_or_throw().mels, 80);
  EXPECT_THAT(settings_of({{"audio_token", "<|AUDIO|>"}}, "processor_config.json").error().message,
              ::testing::HasSubstr("its model reads no sounds"));
}

TEST(SoundSettings, every_key_is_used_or_refused_by_its_name) {
  EXPECT_EQ(refusal(Json::object()), "accepted");
  EXPECT_EQ(refusal({{"dither", 0.0}, {"return_tensors", "pt"}}), "accepted");
  EXPECT_THAT(refusal({{"dither", 0.1}}), ::testing::StartsWith("dither = 0.1 is not supported; only 0.0 is"));
  EXPECT_THAT(refusal({{"do_normalize", true}}), ::testing::StartsWith("do_normalize = true is not supported"));
  EXPECT_THAT(refusal({{"hop_length", 170}}), ::testing::HasSubstr("does not divide the 480000 samples of a clip"));
  EXPECT_THAT(refusal({{"n_fft", 401}}), ::testing::HasSubstr("n_fft"));
  EXPECT_THAT(refusal({{"preemphasis", 0.97}}), ::testing::StartsWith("preemphasis = 0.97 is unknown here"));
  EXPECT_THAT(refusal({{"feature_extractor_type", "EncodecFeatureExtractor"}}),
              ::testing::HasSubstr("WhisperFeatureExtractor"));
}

}  // namespace
}  // namespace maestro
