// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "runtime/core/input_file.hpp"
#include "runtime/model/hf_config.hpp"
#include "runtime/model/hf_keys.hpp"
#include "runtime/model/vision_part.hpp"
#include "runtime/sound/sound_settings.hpp"

namespace maestro {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t most_bands = 1 << 10, most_rate = 1 << 20, most_seconds = 3600;

/// Keys without effect on the rows: choices of the caller and of batches, and keys that follow from others.
bool has_no_effect_on_sounds(std::string_view key) {
  constexpr std::array<std::string_view, 7> keys{"feature_extractor_type", "nb_max_frames",         "n_samples",
                                                 "padding_side",           "return_attention_mask", "processor_class",
                                                 "return_tensors"};
  return std::ranges::find(keys, key) != keys.end();
}

SoundSettings sound_settings_in(const HfKeys& keys) {
  const std::string name = "WhisperFeatureExtractor";
  if (!keys.find("feature_extractor_type")) keys.fail("feature_extractor_type", "is missing");
  keys.require_text("feature_extractor_type", name, {name});
  SoundSettings settings;
  settings.mels = keys.size("feature_size", settings.mels, 1, most_bands);
  settings.rate = keys.size("sampling_rate", settings.rate, 2, most_rate);
  settings.hop = keys.size("hop_length", settings.hop, 1, most_rate);
  settings.window = keys.size("n_fft", settings.window, 2, most_rate);
  settings.seconds = keys.size("chunk_length", settings.seconds, 1, most_seconds);
  if (const JsonValue padding = keys.find("padding_value")) settings.padding = padding.number();
  if (const JsonValue dither = keys.find("dither"); dither && dither.number() != 0) {
    dither.refuse("is not supported; only 0.0 is");
  }
  keys.require_flag("do_normalize", false);
  if (settings.clip_samples() % settings.hop != 0) {
    keys.fail("hop_length", std::to_string(settings.hop) + " does not divide the " +
                                std::to_string(settings.clip_samples()) + " samples of a clip");
  }
  if (settings.window % 2 != 0) keys.fail("n_fft", "is not even, which is not supported");
  if (settings.window > settings.clip_samples()) keys.fail("n_fft", "is longer than a clip");
  const bool images_too = static_cast<bool>(keys.find("image_processor_type"));  // whose reader checks the other keys
  keys.refuse_unknown([&](std::string_view key) { return images_too || has_no_effect_on_sounds(key); });
  return settings;
}

}  // namespace

Result<SoundSettings> read_sound_settings(const fs::path& folder) {
  for (const char* name : {"processor_config.json", "preprocessor_config.json"}) {
    const fs::path file = folder / name;
    std::error_code ignored;
    if (!fs::exists(file, ignored)) continue;
    const Result<std::string> text = read_text(file);
    if (!text) return text.error();
    const bool whole = file.filename() == "preprocessor_config.json";
    auto settings = parse_hf_keys(*text, file.string(), [&](const HfKeys& root) -> std::optional<SoundSettings> {
      if (!whole && !root.find("feature_extractor")) return std::nullopt;
      SoundSettings made = sound_settings_in(whole ? root : root.inside("feature_extractor"));
      made.origin = file.string();
      return made;
    });
    if (!settings) return settings.error();
    if (*settings) return **std::move(settings);
  }
  return Error{ErrorCode::not_found, folder.string() + " has neither preprocessor_config.json nor a " +
                                         "processor_config.json with feature_extractor: its model reads no sounds"};
}

Result<SoundGrid> read_sound_grid(const fs::path& folder) {
  const auto config = read_hf_config_text(folder);
  if (!config) return config.error();
  const auto part = parse_vision_part(config->text, config->file, Modality::sound);
  if (!part) return part.error();
  return SoundGrid{part->encoder.mels, part->encoder.max_patches, part->projector.pool * part->projector.join,
                   part->whole_clips, part->chunk_rows};
}

}  // namespace maestro
