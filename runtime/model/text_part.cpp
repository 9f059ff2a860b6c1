// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/text_part.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <span>

#include "runtime/model/hf_keys.hpp"
#include "runtime/model/thinker.hpp"

namespace maestro {

namespace {

using nlohmann::json;

/// A prefix of stored names, and its replacement in a part.
struct Prefix {
  std::string_view stored;
  ModelPart part;
  std::string_view own;
};

constexpr auto text = ModelPart::language_model, vision = ModelPart::vision, projector = ModelPart::projector;

// The first prefix that matches counts.
constexpr Prefix of_llava[] = {{"language_model.model.", text, "model."},
                               {"language_model.lm_head.", text, "lm_head."},
                               {"model.language_model.", text, "model."},
                               {"lm_head.", text, "lm_head."},
                               {"vision_tower.vision_model.", vision, "vision_model."},
                               {"vision_tower.", vision, "vision_model."},
                               {"model.vision_tower.vision_model.", vision, "vision_model."},
                               {"model.vision_tower.", vision, "vision_model."},
                               {"multi_modal_projector.", projector, "multi_modal_projector."},
                               {"model.multi_modal_projector.", projector, "multi_modal_projector."},
                               {"image_newline", projector, "image_newline"},
                               {"model.image_newline", projector, "image_newline"}};
// A single product has the names of SmolVLM's connector, whatever its model.
constexpr Prefix of_gemma3[] = {
    {"multi_modal_projector.mm_input_projection_weight", projector, "connector.modality_projection.proj.weight"},
    {"multi_modal_projector.mm_soft_emb_norm.", projector, "connector.norm."},
    {"model.multi_modal_projector.mm_input_projection_weight", projector, "connector.modality_projection.proj.weight"},
    {"model.multi_modal_projector.mm_soft_emb_norm.", projector, "connector.norm."}};
constexpr Prefix of_paligemma[] = {
    {"multi_modal_projector.linear.", projector, "connector.modality_projection.proj."},
    {"model.multi_modal_projector.linear.", projector, "connector.modality_projection.proj."}};
// The norm before the projector is a part of the encoder there.
constexpr Prefix of_qwen2_audio[] = {
    {"audio_tower.layer_norm.", projector, "connector.norm."},
    {"audio_tower.", vision, "vision_model."},
    {"multi_modal_projector.linear.", projector, "connector.modality_projection.proj."},
    {"model.audio_tower.layer_norm.", projector, "connector.norm."},
    {"model.audio_tower.", vision, "vision_model."},
    {"model.multi_modal_projector.linear.", projector, "connector.modality_projection.proj."}};
constexpr Prefix of_voxtral[] = {{"audio_tower.layer_norm.", vision, "vision_model.post_layernorm."},
                                 {"audio_tower.", vision, "vision_model."},
                                 {"model.audio_tower.layer_norm.", vision, "vision_model.post_layernorm."},
                                 {"model.audio_tower.", vision, "vision_model."}};
constexpr Prefix of_qwen[] = {{"model.language_model.", text, "model."},
                              {"model.visual.merger.", projector, "multi_modal_projector."},
                              {"model.visual.deepstack_merger_list.", projector, "multi_modal_projector.taps."},
                              {"model.visual.", vision, "vision_model."},
                              {"visual.merger.", projector, "multi_modal_projector."},
                              {"visual.deepstack_merger_list.", projector, "multi_modal_projector.taps."},
                              {"visual.", vision, "vision_model."},
                              {"lm_head.", text, "lm_head."},
                              {"model.", text, "model."}};
constexpr Prefix of_qwen3_5[] = {{"mtp.", ModelPart::other, "mtp."}};
constexpr Prefix of_thinker[] = {
    {"audio_tower.ln_post.", ModelPart::audio_projector, "connector.norm."},
    {"audio_tower.proj.", ModelPart::audio_projector, "connector.modality_projection.proj."},
    {"audio_tower.audio_bos_eos_token.", ModelPart::other, "audio_tower.audio_bos_eos_token."},
    {"audio_tower.", ModelPart::audio, "vision_model."},
    {"model.audio_tower.ln_post.", ModelPart::audio_projector, "connector.norm."},
    {"model.audio_tower.proj.", ModelPart::audio_projector, "connector.modality_projection.proj."},
    {"model.audio_tower.audio_bos_eos_token.", ModelPart::other, "audio_tower.audio_bos_eos_token."},
    {"model.audio_tower.", ModelPart::audio, "vision_model."}};
constexpr Prefix of_idefics[] = {{"model.text_model.", text, "model."},
                                 {"model.vision_model.", vision, "vision_model."},
                                 {"model.connector.", projector, "connector."},
                                 {"lm_head.", text, "lm_head."}};

/// A piece of a stored name in a part that sees images, and its replacement.
struct Piece {
  std::string_view stored, own;
  int ones = 0;  ///< leading dimensions of 1 in the stored tensor
};

// The first piece that matches counts, for the start of the rest of a name.
constexpr Piece pieces_of_qwen[] = {{"patch_embed.proj.", "embeddings.patch_embedding."},
                                    {"pos_embed.", "embeddings.position_embedding."},
                                    {"blocks.", "encoder.layers."},
                                    {"norm1.", "layer_norm1."},
                                    {"norm2.", "layer_norm2."},
                                    {"attn.qkv.", "self_attn.qkv_proj."},
                                    {"attn.q.", "self_attn.q_proj."},
                                    {"attn.k.", "self_attn.k_proj."},
                                    {"attn.v.", "self_attn.v_proj."},
                                    {"attn.proj.", "self_attn.out_proj."},
                                    {"mlp.linear_fc", "mlp.fc"},
                                    {"ln_q.", "norm."},
                                    {"mlp.0.", "linear_1."},
                                    {"mlp.2.", "linear_2."},
                                    {"linear_fc", "linear_"}};
constexpr Piece of_internvl[] = {{"embeddings.cls_token", "embeddings.class_embedding", 2},
                                 {"embeddings.position_embeddings", "embeddings.position_embedding.weight", 1},
                                 {"embeddings.patch_embeddings.projection.", "embeddings.patch_embedding."},
                                 {"encoder.layer.", "encoder.layers."},
                                 {"layernorm_before.", "layer_norm1."},
                                 {"layernorm_after.", "layer_norm2."},
                                 {"attention.projection_layer.", "self_attn.out_proj."},
                                 {"attention.", "self_attn."},
                                 {"lambda_1", "layer_scale1"},
                                 {"lambda_2", "layer_scale2"},
                                 {"layernorm.", "post_layernorm."},
                                 {"layer_norm.", "norm."}};

constexpr Piece pieces_of_whisper[] = {{"conv1.", "embeddings.conv1."},
                                       {"conv2.", "embeddings.conv2."},
                                       {"embed_positions.", "embeddings.position_embedding."},
                                       {"layers.", "encoder.layers."},
                                       {"self_attn_layer_norm.", "layer_norm1."},
                                       {"final_layer_norm.", "layer_norm2."},
                                       {"fc1.", "mlp.fc1."},
                                       {"fc2.", "mlp.fc2."}};

/// A model of transformers for text and images, or text and sounds.
struct Whole {
  std::string_view type;
  std::string_view text_type;  ///< class of text_config
  std::span<const Prefix> names;
  std::span<const Prefix> first_names{};  ///< names that count before `names`
  ImageMask mask = ImageMask::causal;
  bool tied = false;          ///< default of tie_word_embeddings
  bool ties_by_text = false;  ///< text_config's tie_word_embeddings counts, too
  bool flat = false;          ///< old files have text_config's keys at the root
  std::span<const Piece> pieces = {};
  std::array<std::int64_t, 3> sections{};    ///< default of mrope_section; zeros: positions have one axis
  bool interleaved = false;                  ///< pairs of different axes alternate
  std::span<const Piece> sound_pieces = {};  ///< pieces of names in ModelPart::audio
};
constexpr Whole wholes[] = {
    {.type = "llava", .text_type = "llama", .names = of_llava, .ties_by_text = true},
    {.type = "llava_onevision", .text_type = "qwen2", .names = of_llava, .ties_by_text = true},
    {.type = "internvl", .text_type = "qwen2", .names = of_llava, .tied = true, .pieces = of_internvl},
    {.type = "gemma3",
     .text_type = "gemma3_text",
     .names = of_llava,
     .first_names = of_gemma3,
     .mask = ImageMask::images,
     .tied = true},
    {.type = "paligemma",
     .text_type = "gemma",
     .names = of_llava,
     .first_names = of_paligemma,
     .mask = ImageMask::prefix,
     .tied = true},
    {.type = "qwen2_audio",
     .text_type = "qwen2",
     .names = of_llava,
     .first_names = of_qwen2_audio,
     .pieces = pieces_of_whisper},
    {.type = "voxtral",
     .text_type = "llama",
     .names = of_llava,
     .first_names = of_voxtral,
     .pieces = pieces_of_whisper},
    {.type = "qwen2_vl",
     .text_type = "qwen2_vl_text",
     .names = of_qwen,
     .ties_by_text = true,
     .flat = true,
     .pieces = pieces_of_qwen,
     .sections = {16, 24, 24}},
    {.type = "qwen2_5_vl",
     .text_type = "qwen2_5_vl_text",
     .names = of_qwen,
     .flat = true,
     .pieces = pieces_of_qwen,
     .sections = {16, 24, 24}},
    {.type = "qwen3_vl",
     .text_type = "qwen3_vl_text",
     .names = of_qwen,
     .pieces = pieces_of_qwen,
     .sections = {24, 20, 20},
     .interleaved = true},
    {.type = "qwen3_5",
     .text_type = "qwen3_5_text",
     .names = of_qwen,
     .first_names = of_qwen3_5,
     .pieces = pieces_of_qwen},
    {.type = "qwen3_5_moe",
     .text_type = "qwen3_5_moe_text",
     .names = of_qwen,
     .first_names = of_qwen3_5,
     .pieces = pieces_of_qwen},
    {.type = thinker_type,
     .text_type = "qwen2_5_omni_text",
     .names = of_qwen,
     .first_names = of_thinker,
     .pieces = pieces_of_qwen,
     .sections = {16, 24, 24},
     .sound_pieces = pieces_of_whisper},
    {.type = "smolvlm", .text_type = "llama", .names = of_idefics},
    {.type = "idefics3", .text_type = "llama", .names = of_idefics}};

/// The defaults of a text class in transformers 5 that a language model's own config.json always states.
struct TextClass {
  std::string_view type;
  std::string_view decoder;                                                 ///< model_type of the language model
  std::int64_t vocabulary, width, ffn, layers, heads, kv_heads, positions;  ///< ffn 0: the class lacks the key
  double epsilon, theta;
};
constexpr TextClass classes[] = {
    {"llama", "llama", 32000, 4096, 11008, 32, 32, 32, 2048, 1e-6, 1e4},
    {"mistral", "mistral", 32000, 4096, 14336, 32, 32, 8, 131072, 1e-6, 1e4},
    {"qwen2", "qwen2", 151936, 4096, 22016, 32, 32, 32, 32768, 1e-6, 1e4},
    {"qwen3", "qwen3", 151936, 4096, 22016, 32, 32, 32, 32768, 1e-6, 1e4},
    {"qwen2_vl_text", "qwen2", 152064, 8192, 29568, 80, 64, 8, 32768, 1e-5, 1e6},
    {"qwen2_vl", "qwen2", 152064, 8192, 29568, 80, 64, 8, 32768, 1e-5, 1e6},  // in files of old versions
    {"qwen2_5_vl_text", "qwen2", 152064, 8192, 29568, 80, 64, 8, 32768, 1e-5, 1e6},
    {"qwen2_5_vl", "qwen2", 152064, 8192, 29568, 80, 64, 8, 32768, 1e-5, 1e6},
    {"qwen2_5_omni_text", "qwen2", 152064, 3584, 18944, 28, 28, 4, 32768, 1e-6, 1e6},
    {"qwen3_vl_text", "qwen3", 151936, 4096, 22016, 32, 32, 32, 128000, 1e-6, 5e5},
    {"qwen3_5_text", "qwen3_5_text", 248320, 4096, 12288, 32, 16, 4, 32768, 1e-6, 1e4},
    {"qwen3_5_moe_text", "qwen3_5_moe_text", 248320, 2048, 0, 40, 16, 2, 32768, 1e-6, 1e4},
    {"gemma", "gemma", 256000, 3072, 24576, 28, 16, 16, 8192, 1e-6, 1e4},
    {"gemma2", "gemma2", 256000, 2304, 9216, 26, 8, 4, 8192, 1e-6, 1e4},
    {"gemma3_text", "gemma3_text", 262208, 2304, 9216, 26, 8, 4, 131072, 1e-6, 1e6}};

/// Returns whether a key at the root concerns only images, sound or their places in a text.
bool is_of_other_parts(std::string_view key) {
  static const std::set<std::string_view> names = {"audio_config",
                                                   "audio_token_index",
                                                   "boi_token_index",
                                                   "boa_token_index",
                                                   "downsample_ratio",
                                                   "eoi_token_index",
                                                   "hidden_size",
                                                   "ignore_index",
                                                   "image_grid_pinpoints",
                                                   "image_seq_length",
                                                   "image_seq_len",
                                                   "image_token_index",
                                                   "mm_tokens_per_image",
                                                   "multimodal_projector_bias",
                                                   "num_image_tokens",
                                                   "projection_dim",
                                                   "projector_hidden_act",
                                                   "scale_factor",
                                                   "use_image_newline_parameter",
                                                   "video_token_index",
                                                   "vision_aspect_ratio",
                                                   "vision_config",
                                                   "vision_feature_layer",
                                                   "vision_feature_select_strategy",
                                                   "vision_soft_tokens_per_image",
                                                   "vocab_size",
                                                   "initializer_range",
                                                   "perceiver_config",
                                                   "image_processor",
                                                   "position_id_per_seconds",
                                                   "seconds_per_chunk",
                                                   "init_std"};
  return names.contains(key);
}

const Whole* whole_of(std::string_view type) {
  const auto found = std::ranges::find(wholes, without_speech(type), &Whole::type);
  return found == std::ranges::end(wholes) ? nullptr : found;
}

std::string class_names() {
  std::string names;
  for (const TextClass& each : classes) names += (names.empty() ? "" : ", ") + std::string(each.type);
  return names;
}

const TextClass& class_of(const HfKeys& text, const Whole& whole) {
  const JsonValue given = text.find("model_type");
  const std::string type = given && !whole.flat ? given.text() : std::string(whole.text_type);
  const auto found = std::ranges::find(classes, type, &TextClass::type);
  if (found != std::ranges::end(classes)) return *found;
  const std::string problem =
      "has a language model \"" + type + "\", which is not supported; these are: " + class_names();
  if (given) given.refuse(problem);
  text.fail("model_type", problem);
}

/// Makes the rotary positions plain: a text's rows have equal positions on all axes.
void make_rotary_plain(json& text) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto found = text.find(key);
    if (found == text.end() || !found->is_object() || !found->contains("mrope_section")) continue;
    for (const char* axis : {"mrope_section", "mrope_interleaved"}) found->erase(axis);
    for (const char* type : {"type", "rope_type"}) {
      if (found->contains(type) && found->at(type) == "mrope") (*found)[type] = "default";
    }
  }
}

RotaryAxes axes_of(const HfKeys& file, const Whole& whole) {
  if (whole.sections[0] == 0) return {};
  const HfKeys root = without_speech(file);
  const bool inside = root.find("text_config").json().is_object();
  const HfKeys text = inside ? root.inside("text_config") : root;
  RotaryAxes axes{{whole.sections.begin(), whole.sections.end()}, whole.interleaved};
  bool stated = false;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!text.find(key).json().is_object()) continue;
    const HfKeys rope = text.inside(key);
    rope.require_flag("mrope_interleaved", whole.interleaved);
    const JsonValue list = rope.find("mrope_section");
    if (!list) continue;
    std::vector<std::int64_t> sections;
    for (const JsonValue& pairs : list.items()) sections.push_back(pairs.whole_number(1, HfKeys::most_size));
    if (sections.size() != whole.sections.size()) list.expected("numbers of pairs by time, row and column");
    if (stated && sections != axes.sections) list.refuse("contradicts rope_scaling; remove one");
    axes.sections = sections;
    stated = true;
  }
  return axes;
}

void fill_defaults(json& text, const TextClass& of) {
  const auto absent = [&](const char* key) { return !text.contains(key) || text.at(key).is_null(); };
  const auto fill = [&](const char* key, const json& value) {
    if (absent(key)) text[key] = value;
  };
  fill("vocab_size", of.vocabulary);
  fill("hidden_size", of.width);
  if (of.ffn > 0) fill("intermediate_size", of.ffn);
  fill("num_hidden_layers", of.layers);
  fill("num_attention_heads", of.heads);
  if (!text.contains("num_key_value_heads")) text["num_key_value_heads"] = of.kv_heads;
  fill("max_position_embeddings", of.positions);
  fill("rms_norm_eps", of.epsilon);
  if (absent("rope_theta") && absent("rope_parameters")) text["rope_theta"] = of.theta;
}

/// Returns whether the output layer is the token table. A null counts as absent.
bool is_tied(const HfKeys& root, const HfKeys& text, const Whole& whole) {
  const bool tied = root.flag("tie_word_embeddings", whole.tied);
  return tied || (whole.ties_by_text && text.flag("tie_word_embeddings", false));
}

std::string text_config_of(const HfKeys& file, const Whole& whole) {
  const HfKeys root = without_speech(file);
  const bool inside = root.find("text_config").json().is_object();
  if (!inside && !whole.flat) root.find("text_config").expected("the language model's settings");
  const HfKeys text = inside ? root.inside("text_config") : root;
  const TextClass& of = class_of(text, whole);
  const bool tied = is_tied(root, text, whole);
  json out = json::parse(text.json().dump());
  if (!inside) {
    std::erase_if(out.get_ref<json::object_t&>(), [](const auto& entry) {
      return entry.first != "hidden_size" && entry.first != "vocab_size" && entry.first != "initializer_range" &&
             is_of_other_parts(entry.first);
    });
  } else {
    for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
      if (root.find(key) && !text.find(key)) out[key] = root.find(key).json();
    }
    root.refuse_unknown([&](std::string_view key) {
      const bool repeated = text.has(key) && text.find(key).json() == root.find(key).json();
      return repeated || ignored_hf_key(key) || is_of_other_parts(key);
    });
  }
  out["model_type"] = of.decoder;
  out["tie_word_embeddings"] = tied;
  if (whole.type == "paligemma") {  // keys of its prefixes and images
    for (const char* key : {"use_bidirectional_attention", "num_image_tokens"}) out.erase(key);
  }
  if (whole.names.data() == of_idefics) {  // without an effect: keys of the model that Idefics2 was
    for (const char* key : {"neftune_noise_alpha", "pixel_shuffle_factor", "perceiver_config"}) out.erase(key);
  }
  if (whole.type == thinker_type) out.erase("init_std");  // without an effect
  make_rotary_plain(out);
  fill_defaults(out, of);
  return out.dump(2) + "\n";
}

/// Appends a name with its pieces replaced: at its start and after each dot.
void append_renamed(std::string_view rest, std::span<const Piece> pieces, PartName& to) {
  while (!rest.empty()) {
    const auto piece = std::ranges::find_if(pieces, [&](const Piece& each) { return rest.starts_with(each.stored); });
    const bool found = piece != pieces.end();
    const std::size_t dot = rest.find('.');
    const std::size_t taken = found ? piece->stored.size() : dot == rest.npos ? rest.size() : dot + 1;
    to.name += found ? piece->own : rest.substr(0, taken);
    if (found) to.leading_ones = piece->ones;
    rest.remove_prefix(taken);
  }
}

}  // namespace

bool has_text_part(std::string_view model_type) {
  return whole_of(model_type) != nullptr;
}

ImageMask image_mask(std::string_view model_type) {
  const Whole* whole = whole_of(model_type);
  return whole == nullptr ? ImageMask::causal : whole->mask;
}

Result<std::string> language_model_config(std::string_view text, std::string_view where) {
  return parse_hf_keys(text, where, [&](const HfKeys& root) {
    const JsonValue type = root.find("model_type");
    const Whole* whole = type.json().is_string() ? whole_of(type.text()) : nullptr;
    return whole == nullptr ? std::string(text) : text_config_of(root, *whole);
  });
}

Result<RotaryAxes> rotary_axes(std::string_view text, std::string_view where) {
  return parse_hf_keys(text, where, [&](const HfKeys& root) {
    const JsonValue type = root.find("model_type");
    const Whole* whole = type.json().is_string() ? whole_of(type.text()) : nullptr;
    return whole == nullptr ? RotaryAxes() : axes_of(root, *whole);
  });
}

std::optional<PartName> part_name(std::string_view model_type, std::string_view stored) {
  const Whole* whole = whole_of(model_type);
  if (whole == nullptr) return std::nullopt;
  if (model_type == omni_type) {
    if (is_of_speech(stored)) return PartName{ModelPart::other, std::string(stored)};
    const std::optional<std::string_view> own = name_in_thinker(stored);
    return own ? part_name(thinker_type, *own) : std::nullopt;
  }
  for (const std::span<const Prefix> names : {whole->first_names, whole->names}) {
    const auto prefix =
        std::ranges::find_if(names, [&](const Prefix& each) { return stored.starts_with(each.stored); });
    if (prefix == names.end()) continue;
    PartName found{prefix->part, std::string(prefix->own)};
    const std::string_view rest = stored.substr(prefix->stored.size());
    const bool plain = prefix->part == text || prefix->part == ModelPart::other;
    const std::span<const Piece> pieces = prefix->part == ModelPart::audio ? whole->sound_pieces : whole->pieces;
    append_renamed(rest, plain ? std::span<const Piece>() : pieces, found);
    return found;
  }
  return std::nullopt;
}

}  // namespace maestro
