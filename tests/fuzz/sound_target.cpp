// SPDX-License-Identifier: Apache-2.0
// Fuzz target for sounds: WAV and FLAC files. The frames and rows of an accepted sound at the model's rate are made,
// too.
#include "fuzz_target.hpp"
#include "runtime/sound/sound.hpp"
#include "runtime/sound/sound_processor.hpp"

namespace maestro::fuzz {
namespace {

const SoundProcessor& processor() {
  static const SoundProcessor made = [] {
    SoundSettings settings;
    settings.mels = 8;
    settings.seconds = 1;
    return SoundProcessor(settings, {8, 50, 2});
  }();
  return made;
}

void hear(const Sound& sound, const ImagePlan& plan) {
  std::vector<float> pixels(static_cast<std::size_t>(plan.encoder_rows * processor().columns()));
  std::vector<std::int32_t> places(static_cast<std::size_t>(plan.encoder_rows * 3));
  processor().rows(processor().frames(sound), pixels, places);
}

}  // namespace
}  // namespace maestro::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace maestro;
  const std::string_view bytes = fuzz::text_of(data, size);
  const Result<SoundFormat> format = read_sound_format(bytes, "sound");
  fuzz::accepted(format);
  const Result<Sound> sound = read_sound(bytes, "sound");
  if (!fuzz::accepted(sound)) return 0;
  const auto samples = static_cast<std::int64_t>(sound->samples.size());
  fuzz::require(format.ok() && format->rate == sound->rate && format->samples == samples,
                "a sound has the rate and the samples of its header");
  const Result<ImagePlan> plan = fuzz::processor().plan({sound->rate, 1, samples});
  if (fuzz::accepted(plan)) fuzz::hear(*sound, *plan);
  return 0;
}
