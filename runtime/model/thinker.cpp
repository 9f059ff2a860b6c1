// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/thinker.hpp"

#include <algorithm>
#include <array>

namespace maestro {

namespace {

constexpr std::string_view thinker_prefix = "thinker.";

bool is_of_speech_or_known(std::string_view key) {
  constexpr std::array<std::string_view, 4> names{"talker_config", "token2wav_config", "enable_audio_output",
                                                  "enable_talker"};
  return ignored_hf_key(key) || std::ranges::find(names, key) != names.end();
}

}  // namespace

HfKeys without_speech(const HfKeys& root) {
  if (root.find("model_type").json() != omni_type) return root;
  const JsonValue stated = root.find("thinker_config");
  if (!stated.json().is_object()) stated.expected("the settings of the model that is trained");
  root.refuse_unknown(is_of_speech_or_known);
  HfKeys thinker = root.inside("thinker_config");
  thinker.require_text("model_type", thinker_type, {std::string(thinker_type)});
  return thinker;
}

std::optional<std::string_view> name_in_thinker(std::string_view stored) {
  if (!stored.starts_with(thinker_prefix)) return std::nullopt;
  return stored.substr(thinker_prefix.size());
}

bool is_of_speech(std::string_view stored) {
  return stored.starts_with("talker.") || stored.starts_with("token2wav.");
}

}  // namespace maestro
