// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/vision_part.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "runtime/model/encoder_class.hpp"
#include "runtime/model/hf_keys.hpp"
#include "runtime/model/native_encoder.hpp"
#include "runtime/model/sound_encoder.hpp"
#include "runtime/model/text_part.hpp"
#include "runtime/model/thinker.hpp"

namespace maestro {

namespace {

constexpr EncoderClass encoder_classes[] = {clip_class, siglip_class};

/// The projector between encoder and language model, with the keys that describe it.
enum class Connector : std::uint8_t {
  mlp,     ///< LLaVA's: linear, GELU, linear
  joined,  ///< SmolVLM's product of joined rows
  normed,  ///< InternVL's: a norm of joined rows, and LLaVA's
  pooled,  ///< Gemma 3's: the mean of the patches of a block, norm, linear
  linear   ///< PaliGemma's
};

/// A vision-language model of transformers.
struct Family {
  std::string_view type;
  Connector connector = Connector::mlp;
  bool one_class = false;           ///< vision_config is of the class `encoder`, whatever its model_type
  bool fits = false;                ///< images are fitted into canvases
  std::int64_t feature_layer = -1;  ///< default of vision_feature_layer
  std::string_view image_token;     ///< key
  std::int64_t image_token_id = 0;
  EncoderClass encoder;                   ///< class of a vision_config without model_type
  EncoderClass absent;                    ///< defaults if vision_config is absent
  const NativeEncoder* native = nullptr;  ///< class of an encoder for images of any size; null: `encoder` counts
  const SoundEncoder* sound = nullptr;    ///< class of an encoder for sounds, in audio_config; null: for images
  std::string_view sound_token{};         ///< key, if the model reads images, too
  std::int64_t sound_token_id = 0;
};

constexpr EncoderClass with_sizes(EncoderClass of, std::int64_t layers, std::int64_t width, std::int64_t ffn,
                                  std::int64_t image) {
  of.layers = layers;
  of.width = width;
  of.ffn = ffn;
  of.heads = 16;
  of.image = image;
  of.patch = 14;
  return of;
}

constexpr Family native_family(std::string_view type, const NativeEncoder& encoder) {
  return {.type = type,
          .image_token = "image_token_id",
          .image_token_id = 151655,
          .encoder = {},
          .absent = {},
          .native = &encoder};
}

constexpr Family families[] = {{.type = "llava",
                                .feature_layer = -2,
                                .image_token = "image_token_index",
                                .image_token_id = 32000,
                                .encoder = clip_class,
                                .absent = with_sizes(clip_class, 24, 1024, 4096, 336)},
                               {.type = "llava_onevision",
                                .fits = true,
                                .image_token = "image_token_index",
                                .image_token_id = 151646,
                                .encoder = siglip_class,
                                .absent = with_sizes(siglip_class, 26, 1152, 4304, 384)},
                               {.type = "gemma3",
                                .connector = Connector::pooled,
                                .image_token = "image_token_index",
                                .image_token_id = 262144,
                                .encoder = siglip_class,
                                .absent = siglip_class},
                               {.type = "paligemma",
                                .connector = Connector::linear,
                                .image_token = "image_token_index",
                                .image_token_id = 256000,
                                .encoder = siglip_class,
                                .absent = with_sizes(siglip_class, 27, 1152, 4096, 224)},
                               {.type = "smolvlm",
                                .connector = Connector::joined,
                                .one_class = true,
                                .image_token = "image_token_id",
                                .image_token_id = 128257,
                                .encoder = smolvlm_class,
                                .absent = smolvlm_class},
                               {.type = "idefics3",
                                .connector = Connector::joined,
                                .one_class = true,
                                .image_token = "image_token_id",
                                .image_token_id = 128257,
                                .encoder = smolvlm_class,
                                .absent = smolvlm_class},
                               native_family("qwen2_vl", native_encoders[0]),
                               native_family("qwen2_5_vl", native_encoders[1]),
                               native_family("qwen3_vl", native_encoders[2]),
                               {.type = "internvl",
                                .connector = Connector::normed,
                                .one_class = true,
                                .image_token = "image_token_id",
                                .image_token_id = 151667,
                                .encoder = internvl_class,
                                .absent = internvl_class},
                               {.type = "qwen2_audio",
                                .image_token = "audio_token_index",
                                .image_token_id = 151646,
                                .encoder = {},
                                .absent = {},
                                .sound = &qwen2_audio_encoder},
                               {.type = "voxtral",
                                .image_token = "audio_token_id",
                                .image_token_id = 24,
                                .encoder = {},
                                .absent = {},
                                .sound = &voxtral_encoder},
                               {.type = thinker_type,
                                .image_token = "image_token_index",
                                .image_token_id = 151655,
                                .encoder = {},
                                .absent = {},
                                .native = &native_encoders[3],
                                .sound = &omni_encoder,
                                .sound_token = "audio_token_index",
                                .sound_token_id = 151646}};

const Family* family_of_type(std::string_view type) {
  const auto found = std::ranges::find(families, without_speech(type), &Family::type);
  return found == std::ranges::end(families) ? nullptr : found;
}

const EncoderClass& class_of(const HfKeys& vision, const Family& family) {
  const JsonValue type = vision.find("model_type");
  if (!type || family.one_class) return family.encoder;
  std::vector<std::string> names;
  for (const EncoderClass& each : encoder_classes) {
    if (type.json() == each.type) return each;
    names.emplace_back(each.type);
  }
  type.refuse_choice(names);
}

VisionConfig encoder_of(const HfKeys& root, const Family& family) {
  const JsonValue stated = root.find("vision_config");
  const HfKeys vision = root.inside("vision_config");
  if (stated && !stated.json().is_object()) stated.expected("an object");
  const EncoderClass& defaults = stated ? class_of(vision, family) : family.absent;
  VisionConfig config = read_encoder(vision, defaults);
  read_square_table(vision, defaults, config);
  config.whole_tiles = true;
  if (stated) refuse_unknown_encoder_keys(vision);
  return config;
}

/// Reads the layer whose output is the features: k is the stream after k layers, and negative numbers count from the
/// end, -1 being the last layer's.
void read_feature_layer(const HfKeys& root, const Family& family, VisionConfig& config) {
  JsonValue layer = root.find("vision_feature_layer");
  if (layer.json().is_array()) {
    const std::vector<JsonValue> items = layer.items();
    if (items.size() != 1) layer.refuse("is not supported; only a single layer is");
    layer = items.front();
  }
  const std::int64_t number = layer.whole_number(-config.layers - 1, config.layers, family.feature_layer);
  const std::int64_t run = number < 0 ? config.layers + 1 + number : number;
  if (run == 0) {
    layer.refuse("selects the input of the first of " + std::to_string(config.layers) +
                 " layers, which is not supported");
  }
  config.layers_run = run == config.layers ? 0 : run;
  // A class with a key for the norm applies it to the features of layer -1.
  config.last_norm = config.last_norm && family.connector == Connector::normed && number == -1;
}

void read_llava(const HfKeys& root, const Family& family, VisionPart& part) {
  VisionConfig& encoder = part.encoder;
  read_feature_layer(root, family, encoder);
  constexpr const char* selection = "vision_feature_select_strategy";
  const char* usual = family.fits ? "full" : "default";
  root.require_text(selection, usual, {"default", "full"});
  const bool drops = root.find(selection).text(usual) == "default";
  if (drops && !encoder.class_row) {
    root.find(selection).refuse("drops the first patch of an encoder without a class row; only \"full\" is supported");
  }
  if (drops) part.projector.tile_rows = encoder.max_patches + 1;
  part.projector.activation = read_gelu(root, "projector_hidden_act", GeluKind::erf);
  if (family.connector == Connector::mlp) part.projector.biases = root.flag("multimodal_projector_bias", true);
}

/// Joins blocks of `factor` patches along each side, which `key` states.
void join_blocks(const HfKeys& root, const char* key, std::int64_t factor, VisionPart& part) {
  const VisionConfig& encoder = part.encoder;
  if (encoder.columns % factor != 0) {
    root.fail(key, std::to_string(factor) + " does not divide the " + std::to_string(encoder.columns) +
                       " patches along an image's side");
  }
  part.projector.join = factor * factor;
}

void read_joined(const HfKeys& root, VisionPart& part) {
  join_blocks(root, "scale_factor", root.size("scale_factor", 2, 1, 1 << 8), part);
  part.projector.products = 1;
  part.projector.biases = false;
}

void read_normed(const HfKeys& root, VisionPart& part) {
  constexpr const char* key = "downsample_ratio";
  const double ratio = root.positive(key, 0.5);
  const auto factor = static_cast<std::int64_t>(1.0 / ratio);
  if (ratio > 1 || static_cast<double>(factor) * ratio != 1.0) {
    root.find(key).refuse("is not supported; only 1, 0.5, 0.25 and other ratios of one patch to several are");
  }
  join_blocks(root, key, factor, part);
  part.projector.norm = FeatureNorm::after_join;
  part.projector.norm_epsilon = 1e-5;  // torch.nn.LayerNorm's
  if (factor > 1 && part.projector.tile_rows == 0) {
    root.find("vision_feature_select_strategy")
        .refuse("keeps class rows, which do not join; only \"default\" is supported");
  }
}

void read_pooled(const HfKeys& root, VisionPart& part) {
  const std::int64_t tokens = root.size("mm_tokens_per_image", 256);
  const std::int64_t side = std::llround(std::sqrt(static_cast<double>(tokens)));
  const std::int64_t patches = part.encoder.columns;
  if (side * side != tokens || patches % side != 0) {
    root.fail("mm_tokens_per_image", std::to_string(tokens) + " is not the square of a divisor of the " +
                                         std::to_string(patches) + " patches along an image's side");
  }
  ProjectorConfig& projector = part.projector;
  projector.pool = (patches / side) * (patches / side);
  projector.norm = FeatureNorm::before_join;
  projector.rms_norm = true;
  projector.norm_offset = 1;
  projector.norm_epsilon = part.encoder.norm_epsilon;
  projector.transposed = true;
  projector.products = 1;
  projector.biases = false;
}

void read_linear(const HfKeys& root, VisionPart& part) {
  if (root.size("projection_dim", 2048) != part.projector.width) {
    root.fail("projection_dim", "differs from the language model's width, " + std::to_string(part.projector.width));
  }
  part.projector.products = 1;
}

std::vector<ImageCanvas> canvases_of(const HfKeys& root) {
  const JsonValue pairs = root.find("image_grid_pinpoints");
  std::vector<ImageCanvas> canvases;
  constexpr std::int64_t most = 6, side = 384, largest = 1 << 20;
  for (std::int64_t at = 0; !pairs && at < most * most; ++at) {
    canvases.push_back({(at / most + 1) * side, (at % most + 1) * side});
  }
  for (const JsonValue& pair : pairs ? pairs.items() : std::vector<JsonValue>{}) {
    const std::vector<JsonValue> sides = pair.items();
    if (sides.size() != 2) pair.expected("a height and a width");
    canvases.push_back({sides[0].whole_number(1, largest), sides[1].whole_number(1, largest)});
  }
  return canvases;
}

void read_fitting(const HfKeys& root, VisionPart& part) {
  const JsonValue ratio = root.find("vision_aspect_ratio");
  constexpr std::string_view start = "anyres_max_";
  const std::string text = ratio.text("anyres_max_9");
  const char* const end = text.data() + text.size();
  std::int64_t most = 0;
  const bool known = text.starts_with(start) && std::from_chars(text.data() + start.size(), end, most).ptr == end &&
                     most >= 1 && most < 1000;
  if (!known) ratio.refuse("is not supported; only anyres_max_K is, such as anyres_max_9");
  part.most_tiles = most;
  part.canvases = canvases_of(root);
  part.projector.newline = true;
  root.require_flag("use_image_newline_parameter", true);
}

/// Refuses keys of the root that neither this part nor the language model reads.
void refuse_unknown_root(const HfKeys& root, const Family& family) {
  const HfKeys text = root.inside("text_config");
  const auto without_effect = [&](std::string_view key) {
    constexpr std::array<std::string_view, 7> always{"text_config",      "tie_word_embeddings", "vocab_size",
                                                     "image_seq_length", "ignore_index",        "video_token_index",
                                                     "initializer_range"};
    constexpr std::array<std::string_view, 3> of_both{"position_id_per_seconds", "seconds_per_chunk", "init_std"};
    constexpr std::array<std::string_view, 4> of_joined{"image_seq_len", "perceiver_config", "image_processor",
                                                        "hidden_size"};
    constexpr std::array<std::string_view, 2> of_pooled{"boi_token_index", "eoi_token_index"};  // the tokenizer's count
    const auto is_in = [&](const auto& names) { return std::ranges::find(names, key) != names.end(); };
    const bool repeated = text.has(key) && text.find(key).json() == root.find(key).json();
    const bool of_text = family.native != nullptr && !text.json().is_object();  // its keys stand at the root
    return repeated || of_text || ignored_hf_key(key) || is_in(always) ||
           (family.connector == Connector::joined && is_in(of_joined)) ||
           (family.connector == Connector::pooled && is_in(of_pooled)) ||
           (family.connector == Connector::linear && key == "hidden_size") ||
           (!family.sound_token.empty() && is_in(of_both));
  };
  root.refuse_unknown(without_effect);
}

/// Returns the other name of a token's key in transformers.
std::string other_token_key(std::string_view key) {
  constexpr std::string_view index = "_index", id = "_id";
  if (key.ends_with(index)) return std::string(key.substr(0, key.size() - index.size())).append(id);
  return std::string(key.substr(0, key.size() - id.size())).append(index);
}

/// Returns a part's object, which may be absent.
HfKeys config_of_part(const HfKeys& root, std::string_view key) {
  if (const JsonValue stated = root.find(key); stated && !stated.json().is_object()) stated.expected("an object");
  return root.inside(key);
}

/// Returns the id of a token, also under its other name.
std::int64_t token_in(const HfKeys& root, std::string_view key, std::int64_t absent) {
  const JsonValue token = root.find(key) ? root.find(key) : root.find(other_token_key(key));
  return token.whole_number(0, HfKeys::most_size, absent);
}

/// Reads both parts of a model with two encoders (VP-3).
VisionPart one_of_two(const HfKeys& root, const Family& family, std::int64_t text_width, Modality modality) {
  VisionPart images, sounds;
  images.image_token = token_in(root, family.image_token, family.image_token_id);
  sounds.image_token = token_in(root, family.sound_token, family.sound_token_id);
  if (images.image_token == sounds.image_token) {
    root.fail(family.sound_token, std::to_string(sounds.image_token) + " is also the token of images");
  }
  read_native_encoder(config_of_part(root, "vision_config"), *family.native, text_width, images);
  read_sound_encoder(config_of_part(root, "audio_config"), *family.sound, text_width, sounds);
  refuse_unknown_root(root, family);
  return modality == Modality::image ? images : sounds;
}

VisionPart part_of(const HfKeys& file, std::int64_t text_width, Modality modality) {
  const HfKeys root = without_speech(file);
  const Family& family = *family_of_type(root.find("model_type").text());
  root.require_absent("quantization_config");
  if (!family.sound_token.empty()) return one_of_two(root, family, text_width, modality);
  VisionPart part;
  part.image_token = token_in(root, family.image_token, family.image_token_id);
  if (family.native != nullptr) {
    read_native_encoder(config_of_part(root, "vision_config"), *family.native, text_width, part);
    refuse_unknown_root(root, family);
    return part;
  }
  if (family.sound != nullptr) {
    read_sound_encoder(config_of_part(root, "audio_config"), *family.sound, text_width, part);
    if (part.whole_clips) part.projector.activation = read_gelu(root, "projector_hidden_act", GeluKind::erf);
    refuse_unknown_root(root, family);
    return part;
  }
  part.encoder = encoder_of(root, family);
  part.projector.vision_width = part.encoder.width;
  part.projector.width = text_width;
  switch (family.connector) {
    case Connector::mlp:
      read_llava(root, family, part);
      break;
    case Connector::normed:
      read_llava(root, family, part);
      read_normed(root, part);
      break;
    case Connector::joined:
      read_joined(root, part);
      break;
    case Connector::pooled:
      read_pooled(root, part);
      break;
    case Connector::linear:
      read_linear(root, part);
      break;
  }
  if (family.fits) read_fitting(root, part);
  refuse_unknown_root(root, family);
  return part;
}

}  // namespace

bool has_vision_part(std::string_view model_type) {
  return family_of_type(model_type) != nullptr;
}

bool has_sound_part(std::string_view model_type) {
  const Family* family = family_of_type(model_type);
  return family != nullptr && family->sound != nullptr;
}

bool has_image_part(std::string_view model_type) {
  const Family* family = family_of_type(model_type);
  return family != nullptr && (family->sound == nullptr || !family->sound_token.empty());
}

std::vector<Modality> modalities_of(std::string_view model_type) {
  std::vector<Modality> found;
  if (has_image_part(model_type)) found.push_back(Modality::image);
  if (has_sound_part(model_type)) found.push_back(Modality::sound);
  return found;
}

std::vector<std::string> vision_part_types() {
  std::vector<std::string> types;
  for (const Family& family : families) types.emplace_back(family.type);
  types.emplace_back(omni_type);
  return types;
}

Result<VisionPart> parse_vision_part(std::string_view text, std::string_view where, Modality modality) {
  const Result<std::string> language = language_model_config(text, where);
  if (!language) return language.error();
  const auto width = parse_hf_keys(*language, std::string(where) + ": text_config",
                                   [](const HfKeys& keys) { return keys.size("hidden_size"); });
  if (!width) return width.error();
  return parse_hf_keys(text, where, [&](const HfKeys& root) { return part_of(root, *width, modality); });
}

}  // namespace maestro
