// SPDX-License-Identifier: Apache-2.0
#include "sections/model_config.hpp"

#include <iomanip>
#include <sstream>
#include <string_view>
#include <vector>

#include "runtime/model/hf_config.hpp"
#include "runtime/model/hf_vision_config.hpp"
#include "runtime/model/vision_part.hpp"
#include "sections/decoder/decoder_shape.hpp"
#include "sections/memory/ngram_memory.hpp"

namespace maestro {

namespace {

/// A setting under its name in the stored file, with both values.
struct Setting {
  const char* key;
  std::string ours;
  std::string stored;
};

template <class Value>
std::string text(const Value& value) {
  std::ostringstream out;
  out << std::boolalpha << std::setprecision(12) << value;
  return out.str();
}

Status compare(const std::vector<Setting>& settings, const std::string& file) {
  for (const Setting& each : settings) {
    if (each.ours == each.stored) continue;
    return Error{ErrorCode::invalid_argument,
                 file + ": " + each.key + " is " + each.stored + ", but the section has " + each.ours};
  }
  return {};
}

Error another_family(const std::string& file, std::string_view stored, std::string_view ours) {
  return {ErrorCode::invalid_argument,
          file + ": model_type is " + std::string(stored) + ", but the section is of family " + std::string(ours)};
}

std::string text(const RotaryScaling& scaling) {
  std::ostringstream out;
  out << "kind " << static_cast<int>(scaling.kind) << ", factor " << scaling.factor << ", original " << scaling.original
      << ", low " << scaling.low << ", high " << scaling.high << ", beta " << scaling.beta_fast << " to "
      << scaling.beta_slow << ", mscale_all_dim " << scaling.score_slope << ", magnitude " << scaling.magnitude
      << ", truncate " << scaling.truncate;
  for (const double factor : scaling.factors) out << ' ' << factor;
  return out.str();
}

std::string text(const std::vector<std::int64_t>& layers) {
  std::string out;
  for (const std::int64_t layer : layers) out += (out.empty() ? "" : ", ") + std::to_string(layer);
  return out.empty() ? "none" : out;
}

std::string text(const std::vector<LayerMixer>& layers) {
  std::string out;
  for (const LayerMixer& layer : layers) {
    const bool conv = layer.kind == MixerKind::convolution;
    const bool delta = layer.kind == MixerKind::delta;
    out += conv ? "conv " : delta ? "delta " : layer.windowed ? "sliding " : layer.rotary ? "full " : "no_rope ";
  }
  return out.empty() ? "all the same" : out;
}

/// Returns the settings that decide shapes and results, for decoders of the same family.
std::vector<Setting> settings(const DecoderConfig& ours, const DecoderConfig& stored) {
  const bool gpt2 = ours.gpt2();
  const auto setting = [&](const char* gpt2_key, const char* key, auto member) {
    return Setting{gpt2 ? gpt2_key : key, text(ours.*member), text(stored.*member)};
  };
  std::vector<Setting> all = {setting("vocab_size", "vocab_size", &DecoderConfig::vocabulary),
                              setting("n_layer", "num_hidden_layers", &DecoderConfig::layers),
                              setting("n_embd", "hidden_size", &DecoderConfig::width),
                              setting("n_head", "num_attention_heads", &DecoderConfig::heads),
                              setting("n_inner", "intermediate_size", &DecoderConfig::ffn),
                              setting("n_positions", "max_position_embeddings", &DecoderConfig::positions),
                              setting("tie_word_embeddings", "tie_word_embeddings", &DecoderConfig::tied),
                              setting("layer_norm_epsilon", "rms_norm_eps", &DecoderConfig::norm_epsilon)};
  if (gpt2) return all;
  const auto more = [&](const char* key, auto member) { all.push_back(setting("", key, member)); };
  more("num_key_value_heads", &DecoderConfig::kv_heads);
  more("head_dim", &DecoderConfig::head_size);
  more("attention_bias", &DecoderConfig::qkv_bias);
  more("mlp_bias", &DecoderConfig::ffn_bias);
  more("tanh GELU in hidden_act", &DecoderConfig::gelu_gate);
  more("rope_theta", &DecoderConfig::rope_theta);
  more("rope_local_base_freq", &DecoderConfig::local_rope_theta);
  more("partial_rotary_factor", &DecoderConfig::rope_share);
  more("rope_scaling", &DecoderConfig::rope_scaling);
  more("sliding_window", &DecoderConfig::window);
  more("layer_types", &DecoderConfig::mixers);
  more(ours.family == DecoderFamily::lfm2 ? "conv_L_cache" : "linear_conv_kernel_dim", &DecoderConfig::conv_width);
  more("conv_bias", &DecoderConfig::conv_bias);
  more("query_pre_attn_scalar", &DecoderConfig::attention_scale);
  more("attn_logit_softcapping", &DecoderConfig::attention_softcap);
  more("final_logit_softcapping", &DecoderConfig::logit_softcap);
  const auto delta = [&](const char* key, auto member) {
    all.push_back({key, text(ours.delta.*member), text(stored.delta.*member)});
  };
  delta("linear_num_key_heads", &DeltaShape::key_heads);
  delta("linear_num_value_heads", &DeltaShape::value_heads);
  delta("linear_key_head_dim", &DeltaShape::key_size);
  delta("linear_value_head_dim", &DeltaShape::value_size);
  const auto latent = [&](const char* key, auto member) {
    all.push_back({key, text(ours.latent.*member), text(stored.latent.*member)});
  };
  latent("kv_lora_rank", &LatentConfig::rank);
  latent("q_lora_rank", &LatentConfig::query_rank);
  latent("qk_rope_head_dim", &LatentConfig::rope_size);
  latent("v_head_dim", &LatentConfig::value_size);
  latent("rope_interleave", &LatentConfig::interleaved);
  const auto expert = [&](const char* key, auto member) {
    all.push_back({key, text(ours.experts.*member), text(stored.experts.*member)});
  };
  expert("num_experts", &ExpertConfig::count);
  expert("num_experts_per_tok", &ExpertConfig::per_token);
  expert("moe_intermediate_size", &ExpertConfig::ffn);
  expert("shared_expert_intermediate_size", &ExpertConfig::shared_ffn);
  expert("mlp_only_layers", &ExpertConfig::dense_layers);
  const auto normed = [](const DecoderConfig& config) {
    return text(config.experts.router.kind == RouterKind::chosen);
  };
  all.push_back({"norm_topk_prob", normed(ours), normed(stored)});
  expert("use_expert_bias", &ExpertConfig::score_bias);
  expert("swiglu_limit", &ExpertConfig::gate_limit);
  expert("swiglu_alpha", &ExpertConfig::gate_alpha);
  const auto router = [&](const char* key, auto member) {
    all.push_back({key, text(ours.experts.router.*member), text(stored.experts.router.*member)});
  };
  router("norm_topk_prob", &RouteOptions::divided);
  router("routed_scaling_factor", &RouteOptions::scale);
  router("n_group", &RouteOptions::groups);
  router("topk_group", &RouteOptions::top_groups);
  return all;
}

std::vector<Setting> settings(const VisionConfig& ours, const VisionConfig& stored) {
  const auto setting = [&](const char* key, auto member) {
    return Setting{key, text(ours.*member), text(stored.*member)};
  };
  std::vector<Setting> all = {
      setting("num_hidden_layers", &VisionConfig::layers),
      setting("hidden_size", &VisionConfig::width),
      setting("num_attention_heads", &VisionConfig::heads),
      setting("intermediate_size", &VisionConfig::ffn),
      setting("patch_size", &VisionConfig::patch),
      setting("layer_norm_eps", &VisionConfig::norm_epsilon),
      {"position_tables", std::string(name_of(ours.positions)), std::string(name_of(stored.positions))}};
  all.push_back({"hidden_act", std::string(name_of(ours.activation)), std::string(name_of(stored.activation))});
  all.push_back(setting("class row", &VisionConfig::class_row));
  all.push_back(setting("norm before the layers", &VisionConfig::pre_norm));
  all.push_back(setting("norm after the layers", &VisionConfig::last_norm));
  all.push_back(setting("bias of patches", &VisionConfig::patch_bias));
  all.push_back(setting("RMS norms", &VisionConfig::rms_norm));
  all.push_back(setting("norms of query and key", &VisionConfig::head_norms));
  all.push_back(setting("attention_bias", &VisionConfig::qkv_bias));
  const auto scaled = [](const VisionConfig& config) { return text(config.branch_scale > 0); };
  all.push_back({"factors of branches", scaled(ours), scaled(stored)});
  all.push_back({"number of layers that are run", text(ours.run_layers()), text(stored.run_layers())});
  all.push_back(setting("gated networks", &VisionConfig::gated));
  all.push_back(setting("fused query, key and value", &VisionConfig::fused_qkv));
  all.push_back(setting("rope_theta", &VisionConfig::rope_theta));
  all.push_back(setting("temporal_patch_size", &VisionConfig::times));
  all.push_back(setting("patches along a window", &VisionConfig::window));
  all.push_back(setting("layers without windows", &VisionConfig::full_layers));
  all.push_back(setting("layers that are tapped", &VisionConfig::taps));
  all.push_back(setting("bias of keys", &VisionConfig::key_bias));
  all.push_back(setting("positions that are not trained", &VisionConfig::fixed_positions));
  all.push_back(setting("num_mel_bins", &VisionConfig::mels));
  if (ours.positions == PatchPositions::grid) {
    all.push_back(setting("max_grid", &VisionConfig::max_grid));
  } else if (ours.positions != PatchPositions::none) {
    all.push_back(setting("(image_size / patch_size)^2", &VisionConfig::max_patches));
  }
  return all;
}

/// Returns the settings; a width that the file does not state is left to the tensors' shapes.
std::vector<Setting> settings(const ProjectorConfig& ours, const ProjectorConfig& stored) {
  std::vector<Setting> all;
  if (stored.vision_width != 0) {
    all.push_back({"vision_config: hidden_size", text(ours.vision_width), text(stored.vision_width)});
  }
  if (stored.width != 0) all.push_back({"text_config: hidden_size", text(ours.width), text(stored.width)});
  all.push_back(
      {"projector_hidden_act", std::string(name_of(ours.activation)), std::string(name_of(stored.activation))});
  const auto setting = [&](const char* key, auto member) {
    all.push_back({key, text(ours.*member), text(stored.*member)});
  };
  setting("multimodal_projector_bias", &ProjectorConfig::biases);
  setting("scale_factor^2", &ProjectorConfig::join);
  setting("number of products", &ProjectorConfig::products);
  setting("rows of a tile with a class row", &ProjectorConfig::tile_rows);
  setting("image_newline", &ProjectorConfig::newline);
  setting("columns between the products", &ProjectorConfig::hidden);
  const auto norm = [](const ProjectorConfig& config) {
    constexpr const char* names[] = {"none", "before the join", "after the join"};
    return names[static_cast<std::size_t>(config.norm)];
  };
  all.push_back({"norm", norm(ours), norm(stored)});
  setting("RMS norm", &ProjectorConfig::rms_norm);
  setting("norm_epsilon", &ProjectorConfig::norm_epsilon);
  setting("norm_offset", &ProjectorConfig::norm_offset);
  setting("number of taps", &ProjectorConfig::taps);
  setting("number of features in a mean", &ProjectorConfig::pool);
  setting("transposed matrix", &ProjectorConfig::transposed);
  setting("features that are dropped at a tile's end", &ProjectorConfig::drops_rest);
  return all;
}

Status compare_decoders(const std::string& config_json, const HfConfigText& found) {
  const auto own = parse_hf_config(config_json, "the section's config.json");
  if (!own) return own.error();
  const auto stored = parse_hf_config(found.text, found.file);
  if (!stored) return stored.error();
  if (own->family != stored->family) return another_family(found.file, name_of(stored->family), name_of(own->family));
  return compare(settings(resolved(*own), resolved(*stored)), found.file);
}

bool is_memory(const std::string& config_json) {
  const auto type = hf_model_type(config_json, "the section's config.json");
  return type && *type == ngram_memory_type;
}

Status compare_memories(const std::string& config_json, const HfConfigText& found) {
  const auto own = parse_ngram_config(config_json, "the section's config.json");
  if (!own) return own.error();
  const auto stored = parse_ngram_config(found.text, found.file);
  if (!stored) return stored.error();
  const auto setting = [&](const char* key, auto member) {
    return Setting{key, text((*own).*member), text((*stored).*member)};
  };
  return compare({setting("ngram_size", &NGramShape::orders), setting("heads_per_ngram", &NGramShape::heads),
                  setting("ngram_vocab_size_base", &NGramShape::rows), setting("ngram_embed_dim", &NGramShape::dim),
                  setting("vocab_size", &NGramShape::vocabulary), setting("seed", &NGramShape::seed),
                  setting("eos_token_id", &NGramShape::end_of_text),
                  setting("make_ngram_vocab_size_divisible_by", &NGramShape::divisor)},
                 found.file);
}

template <class Config>
Status compare_with(const std::string& config_json, const HfConfigText& found,
                    Result<Config> (*parse)(std::string_view, std::string_view, Modality)) {
  const Modality modality = modality_of_config(config_json);
  const auto own = parse(config_json, "the section's config.json", modality);
  if (!own) return own.error();
  const auto stored = parse(found.text, found.file, modality);
  if (!stored) return stored.error();
  return compare(settings(*own, *stored), found.file);
}

}  // namespace

ModelPart part_of_config(const std::string& config_json) {
  const auto type = hf_model_type(config_json, "the section's config.json");
  if (type && (*type == "siglip_vision_model" || *type == "maestro_vision")) return ModelPart::vision;
  return type && *type == "maestro_projector" ? ModelPart::projector : ModelPart::language_model;
}

ModelPart part_in_folder(const std::string& config_json, const std::filesystem::path& folder) {
  const ModelPart part = part_of_config(config_json);
  if (part == ModelPart::language_model || modality_of_config(config_json) == Modality::image) return part;
  if (!has_image_part(vision_language_type(folder))) return part;
  return part == ModelPart::vision ? ModelPart::audio : ModelPart::audio_projector;
}

Status check_same_model(const std::string& config_json, const std::filesystem::path& folder) {
  const auto found = read_hf_config_text(folder);
  if (!found) return found.error();
  if (is_memory(config_json)) return compare_memories(config_json, *found);
  switch (part_of_config(config_json)) {
    case ModelPart::vision:
      return compare_with<VisionConfig>(config_json, *found, parse_hf_vision_config);
    case ModelPart::projector:
      return compare_with<ProjectorConfig>(config_json, *found, parse_hf_projector_config);
    case ModelPart::language_model:
    case ModelPart::audio:
    case ModelPart::audio_projector:
    case ModelPart::other:
      break;
  }
  return compare_decoders(config_json, *found);
}

}  // namespace maestro
