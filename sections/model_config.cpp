#include "sections/model_config.hpp"

#include <sstream>

#include "runtime/state/hf_config.hpp"
#include "sections/decoder/decoder_shape.hpp"

namespace maestro {

namespace {

/// One setting under both of its names and with both of its values.
struct Setting {
  const char* gpt2_key;
  const char* llama_key;
  std::string ours;
  std::string stored;
};

template <class Value>
std::string text(const Value& value) {
  std::ostringstream out;
  out << std::boolalpha << value;
  return out.str();
}

/// What decides shapes and results, of models of one family; keys of the other family are null.
std::vector<Setting> settings(const DecoderConfig& ours, const DecoderConfig& stored) {
  const auto setting = [&](const char* gpt2_key, const char* llama_key, auto member) {
    return Setting{gpt2_key, llama_key, text(ours.*member), text(stored.*member)};
  };
  return {setting("vocab_size", "vocab_size", &DecoderConfig::vocabulary),
          setting("n_layer", "num_hidden_layers", &DecoderConfig::layers),
          setting("n_embd", "hidden_size", &DecoderConfig::width),
          setting("n_head", "num_attention_heads", &DecoderConfig::heads),
          setting(nullptr, "num_key_value_heads", &DecoderConfig::kv_heads),
          setting("n_inner", "intermediate_size", &DecoderConfig::ffn),
          setting("n_positions", "max_position_embeddings", &DecoderConfig::positions),
          setting("tie_word_embeddings", "tie_word_embeddings", &DecoderConfig::tied),
          setting(nullptr, "rope_theta", &DecoderConfig::rope_theta),
          setting("layer_norm_epsilon", "rms_norm_eps", &DecoderConfig::norm_epsilon)};
}

}  // namespace

Status check_same_model(const std::string& config_json, const std::filesystem::path& folder) {
  const auto own = parse_hf_config(config_json, "the section's config.json");
  if (!own) return own.error();
  const auto found = read_hf_config(folder);
  if (!found) return found.error();
  const DecoderConfig ours = resolved(*own), stored = resolved(*found);
  const std::string file = (folder / "config.json").string();
  if (ours.family != stored.family) {
    return Error{ErrorCode::invalid_argument,
                 file + ": model_type is " + stored.family + ", but the section is of family " + ours.family};
  }
  for (const Setting& each : settings(ours, stored)) {
    const char* key = ours.family == "llama" ? each.llama_key : each.gpt2_key;
    if (key == nullptr || each.ours == each.stored) continue;
    return Error{ErrorCode::invalid_argument,
                 file + ": " + key + " is " + each.stored + ", but the section has " + each.ours};
  }
  return {};
}

}  // namespace maestro
