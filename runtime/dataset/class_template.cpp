// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/class_template.hpp"

#include <algorithm>
#include <string_view>

#include "runtime/core/input_file.hpp"
#include "runtime/model/hf_config.hpp"
#include "runtime/model/hf_keys.hpp"
#include "runtime/tokenizer/tokenizer_config.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

struct ClassTemplate {
  std::string_view type;  // model_type
  const char* text;
};
constexpr ClassTemplate templates[] = {
    {"qwen2_audio",
     "{% set sounds = namespace(count=0) %}{% for message in messages %}"
     "{% if loop.first and message.role != 'system' %}"
     "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}<|im_start|>{{ message.role }}\n"
     "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
     "{% if part.type == 'audio' %}{% set sounds.count = sounds.count + 1 %}"
     "Audio {{ sounds.count }}: <|audio_bos|><|AUDIO|><|audio_eos|>\n"
     "{% elif 'text' in part %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
     "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"}};

bool has_file(const fs::path& file) {
  std::error_code ignored;
  return fs::exists(file, ignored);
}

/// Returns whether a file of the processor states a template.
bool states_template(const fs::path& folder) {
  if (has_file(folder / "chat_template.jinja") || has_file(folder / "chat_template.json")) return true;
  const fs::path processor = folder / "processor_config.json";
  if (!has_file(processor)) return false;
  return parse_hf_keys(read_text(processor).value_or_throw(), processor.string(),
                       [](const HfKeys& keys) { return static_cast<bool>(keys.find("chat_template")); })
      .value_or_throw();
}

}  // namespace

void use_class_template(const fs::path& folder, TokenizerConfig& config) {
  const HfConfigText model = read_hf_config_text(folder).value_or_throw();
  const auto type = hf_model_type(model.text, model.file);
  const auto found = type ? std::ranges::find(templates, *type, &ClassTemplate::type) : std::ranges::end(templates);
  if (found == std::ranges::end(templates) || states_template(folder)) return;
  config.chat_template = found->text;
  config.template_file = "the chat template of " + *type + "'s processor";
}

}  // namespace maestro
