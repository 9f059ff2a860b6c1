// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/image_expander.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "runtime/core/input_file.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/dataset/media_processor.hpp"
#include "runtime/images/encoder_grid.hpp"
#include "runtime/model/hf_config.hpp"
#include "runtime/model/hf_keys.hpp"
#include "runtime/model/vision_part.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t most_tokens = std::int64_t{1} << 20;

/// Keys of processor_config.json that other readers use, and names of tokens that the tokenizer has, too.
bool has_no_effect(std::string_view key) {
  constexpr std::array<std::string_view, 10> keys{
      "audio_bos_token", "audio_eos_token", "auto_map",  "chat_template",   "feature_extractor",
      "image_processor", "processor_class", "tokenizer", "video_processor", "video_token"};
  return std::ranges::find(keys, key) != keys.end();
}

/// Returns read(keys) of a file's object, and of an empty one without the file.
template <class Read>
auto read_file(const fs::path& file, const Read& read) {
  std::error_code ignored;
  std::string text = "{}";
  if (fs::exists(file, ignored)) text = read_text(file).value_or_throw();
  return parse_hf_keys(text, file.string(), read).value_or_throw();
}

/// Returns model_type of a folder's config.json.
std::string model_type_of(const fs::path& folder) {
  const HfConfigText config = read_hf_config_text(folder).value_or_throw();
  const std::string type = hf_model_type(config.text, config.file).value_or_throw();
  const std::vector<std::string> known = ImageExpander::model_types();
  if (std::ranges::find(known, type) != known.end()) return type;
  return read_json(config.text, config.file, ErrorCode::invalid_argument,
                   [&](const JsonValue& root) -> std::string { root.at("model_type").refuse_choice(known); })
      .value_or_throw();
}

/// Returns a token that tokenizer_config.json names, also among extra_special_tokens.
std::string named_token(const HfKeys& keys, const char* name, const char* absent) {
  if (const JsonValue value = keys.find(name)) {
    return value.json().is_object() ? value.at("content").text() : value.text();
  }
  const JsonValue extra = keys.find("extra_special_tokens");
  if (!extra || !extra.json().is_object()) return absent;
  return extra.find(name).text(std::string(absent));
}

/// Returns a token that tokenizer_config.json must name.
std::string required_token(const HfKeys& keys, const char* name) {
  const std::string token = named_token(keys, name, "");
  if (token.empty()) keys.fail(name, "is missing, also in extra_special_tokens");
  return token;
}

/// Does the same for a token that `tokenizer` must have.
std::string special_token(const HfKeys& keys, const char* name, const Tokenizer& tokenizer) {
  const std::string token = required_token(keys, name);
  if (tokenizer.encode(token).size() == 1) return token;
  keys.fail(name, printable(token) + " is not encoded as a single token by the tokenizer");
}

/// Returns the token of config.json that stands for rows of this kind.
std::int32_t token_in(const fs::path& folder, const Tokenizer& tokenizer, Modality modality) {
  const std::int64_t token = read_image_token(folder, modality).value_or_throw();
  const std::string named = (folder / "config.json").string() + ": " + std::string(medium_of(modality).noun) +
                            " token " + std::to_string(token);
  if (token >= tokenizer.vocabulary()) {
    throw JobError(named + " is not one of the tokenizer's tokens, " + std::to_string(tokenizer.vocabulary()));
  }
  const auto found = static_cast<std::int32_t>(token);
  const std::string text = tokenizer.piece(found);
  if (tokenizer.encode(text) == std::vector<std::int32_t>{found}) return found;
  throw JobError(named + " is " + printable(text) + ", which the tokenizer does not encode as a single token");
}

bool drops_a_row(const HfKeys& keys) {
  keys.require_text("vision_feature_select_strategy", "full", {"default", "full"});
  return keys.find("vision_feature_select_strategy").text(std::string("full")) == "default";
}

std::string of_size(ImageSize size) {
  return std::to_string(size.width) + " x " + std::to_string(size.height) + " pixels";
}

}  // namespace

/// Readers of the numbers in processor_config.json.
struct ImageExpander::Reader {
  static Counting tagged(const HfKeys& keys) {
    constexpr std::int64_t of_class = 169;
    Counting made;
    made.tile = keys.size("image_seq_len", of_class, 1, most_tokens);
    made.stated = "image_seq_len is " + std::to_string(made.tile) + (keys.find("image_seq_len") ? "" : " by default");
    return made;
  }
  static Counting stated_length(const HfKeys& keys) {
    Counting made;
    made.tile = keys.size("image_seq_length", 256, 1, most_tokens);
    made.each_tile = true;
    made.stated =
        "image_seq_length is " + std::to_string(made.tile) + (keys.find("image_seq_length") ? "" : " by default");
    return made;
  }
  static Counting llava(const HfKeys& keys) {
    Counting made;
    made.more = keys.size("num_additional_image_tokens", 0, 0, most_tokens) - (drops_a_row(keys) ? 1 : 0);
    if (!keys.find("patch_size")) return {};  // files of early versions: the processor itself cannot count
    made.patch = keys.size("patch_size", {}, 1, most_tokens);
    made.stated = "patch_size is " + std::to_string(made.patch) + ", num_additional_image_tokens " +
                  std::to_string(keys.size("num_additional_image_tokens", 0, 0, most_tokens)) +
                  ", vision_feature_select_strategy " + (drops_a_row(keys) ? "default" : "full");
    return made;
  }
  static Counting onevision(const HfKeys& keys, const EncoderGrid& encoder) {
    keys.require_text("vision_feature_select_strategy", "full", {"full"});
    const std::string tiles = "anyres_max_" + std::to_string(encoder.most_tiles);
    if (const JsonValue ratio = keys.find("vision_aspect_ratio"); ratio && ratio.text() != tiles) {
      ratio.refuse("differs from the model's " + tiles);
    }
    Counting made;
    if (!keys.find("num_image_tokens")) return made;
    made.tile = keys.size("num_image_tokens", {}, 1, most_tokens);
    made.stated = "num_image_tokens is " + std::to_string(made.tile);
    return made;
  }
};

std::vector<std::string> ImageExpander::model_types() {
  return {"gemma3",          "idefics3",    "internvl",     "llava",
          "llava_onevision", "paligemma",   "qwen2_5_omni", "qwen2_5_omni_thinker",
          "qwen2_5_vl",      "qwen2_audio", "qwen2_vl",     "qwen3_vl",
          "smolvlm",         "voxtral"};
}

Result<ImageExpander> ImageExpander::read(const fs::path& folder, const Tokenizer& tokenizer,
                                          const EncoderGrid& encoder) {
  try {
    ImageExpander made;
    const fs::path processor = folder / "processor_config.json";
    const std::string type = model_type_of(folder);
    const bool both = has_image_part(type) && has_sound_part(type), hears = has_sound_part(type) && !both;
    if (hears) made.nouns_ = "sounds";
    made.file_ = processor.string();
    made.image_token_ = token_in(folder, tokenizer, hears ? Modality::sound : Modality::image);
    made.image_text_ = tokenizer.piece(made.image_token_);
    if (both) {
      made.nouns_ = "images and sounds";
      made.sound_token_ = token_in(folder, tokenizer, Modality::sound);
      made.sound_text_ = tokenizer.piece(*made.sound_token_);
    }
    made.placeholder_ = made.image_text_;
    made.tagged_ = type == "smolvlm" || type == "idefics3";
    made.counting_ = read_file(processor, [&](const HfKeys& keys) {
      const auto check = [&](const char* key, std::int32_t token, const std::string& text) {
        const JsonValue name = keys.find(key);
        if (!name || name.text() == text) return;
        name.refuse("differs from token " + std::to_string(token) + " of config.json, " + printable(text));
      };
      check(hears ? "audio_token" : "image_token", made.image_token_, made.image_text_);
      if (both) check("audio_token", *made.sound_token_, made.sound_text_);
      const Counting counting = made.tagged_                             ? Reader::tagged(keys)
                                : type == "internvl" || type == "gemma3" ? Reader::stated_length(keys)
                                : type == "llava"                        ? Reader::llava(keys)
                                : type == "llava_onevision"              ? Reader::onevision(keys, encoder)
                                                                         : Counting();
      keys.refuse_unknown(has_no_effect);
      return counting;
    });
    if (!made.tagged_ && !made.counting_.each_tile) return made;
    return read_file(folder / "tokenizer_config.json", [&](const HfKeys& keys) {
      if (type == "gemma3") {
        made.placeholder_ = special_token(keys, "boi_token", tokenizer);
        made.before_ = "\n\n" + made.placeholder_;
        made.after_ = special_token(keys, "eoi_token", tokenizer) + "\n\n";
        return made;
      }
      if (!made.tagged_) {
        made.before_ = required_token(keys, "start_image_token");
        made.after_ = required_token(keys, "end_image_token");
        const std::string inside = required_token(keys, "context_image_token");
        if (inside == made.image_text_) return made;
        keys.fail("context_image_token", printable(inside) + " differs from token " +
                                             std::to_string(made.image_token_) + " of config.json, " +
                                             printable(made.image_text_));
      }
      const bool named_here = type == "smolvlm";  // Idefics3Processor has fixed names
      constexpr const char *around = "<fake_token_around_image>", *global = "<global-img>";
      made.around_ = named_here ? named_token(keys, "fake_image_token", around) : around;
      made.global_ = named_here ? named_token(keys, "global_image_token", global) : global;
      return made;
    });
  } catch (const JobError& problem) {
    return Error{problem.code(), problem.what()};
  }
}

ImageExpander ImageExpander::of_token(std::int32_t image_token, std::string image_text) {
  ImageExpander made;
  made.image_token_ = image_token;
  made.image_text_ = std::move(image_text);
  made.placeholder_ = made.image_text_;
  return made;
}

std::vector<std::int64_t> ImageExpander::runs_of(const ImagePlan& plan) const {
  if (tagged_) return std::vector<std::int64_t>(plan.tiles.size(), counting_.tile);
  if (counting_.each_tile) return {counting_.tile * std::ssize(plan.tiles)};
  const ImageSize tile = plan.tiles.front().size;
  if (counting_.patch > 0) {
    return {(tile.height / counting_.patch) * (tile.width / counting_.patch) + counting_.more};
  }
  const std::int64_t rows = plan.encoder_rows / std::ssize(plan.tiles);
  return {counting_.tile == 0 || counting_.tile == rows ? plan.visual_rows : counting_.tile};
}

Result<ExpandedImage> ImageExpander::expand(const ImagePlan& plan) const {
  if (sound_token_ && plan.modality == Modality::sound) {
    return ExpandedImage{sound_text_, {plan.visual_rows}, Modality::sound};
  }
  ExpandedImage made{before_ + image_text_ + after_, runs_of(plan), plan.modality};
  const std::int64_t tokens = std::accumulate(made.runs.begin(), made.runs.end(), std::int64_t{0});
  if (tokens != plan.visual_rows) {
    return Error{ErrorCode::invalid_argument, printable(file_) + ": processor and model disagree: an image of " +
                                                  of_size(plan.source) + " brings " + std::to_string(plan.visual_rows) +
                                                  " rows, but its text has " + std::to_string(tokens) + " places; " +
                                                  counting_.stated + ", and the model makes " +
                                                  std::to_string(plan.visual_rows / std::ssize(plan.tiles)) +
                                                  " rows of a tile of " + of_size(plan.tiles.front().size)};
  }
  if (!tagged_) return made;
  made.text.clear();
  for (std::int64_t row = 1; row <= plan.cut.rows; ++row) {
    for (std::int64_t column = 1; column <= plan.cut.columns; ++column) {
      made.text += around_ + "<row_" + std::to_string(row) + "_col_" + std::to_string(column) + ">" + image_text_;
    }
    made.text += '\n';
  }
  made.text += (plan.cut.rows > 0 ? "\n" : "") + around_ + global_ + image_text_ + around_;
  return made;
}

std::string ImageExpander::insert(std::string_view text, std::span<const ExpandedImage> images) const {
  std::string whole;
  for (const ExpandedImage& image : images) {
    const std::string& place = placeholder(image.modality);
    const std::size_t at = text.find(place);
    if (at == text.npos) break;
    whole.append(text.substr(0, at)).append(image.text);
    text.remove_prefix(at + place.size());
  }
  return whole.append(text);
}

std::size_t ImageExpander::places(std::string_view text) const {
  const auto count = [&](const std::string& place) {
    std::size_t found = 0;
    for (std::size_t at = text.find(place); at != text.npos; at = text.find(place, at + place.size())) ++found;
    return found;
  };
  return count(placeholder_) + (sound_token_ ? count(sound_text_) : 0);
}

std::string ImageExpander::placeholders() const {
  return printable(placeholder_) + (sound_token_ ? " or " + printable(sound_text_) : "");
}

std::optional<std::vector<std::int64_t>> ImageExpander::repeats(std::span<const std::int32_t> tokens,
                                                                std::span<const ExpandedImage> images) const {
  std::vector<std::pair<std::int32_t, std::int64_t>> runs;
  for (const ExpandedImage& image : images) {
    for (const std::int64_t length : image.runs) runs.emplace_back(token_of(image), length);
  }
  std::vector<std::int64_t> counts;
  std::size_t run = 0;
  for (const std::int32_t token : tokens) {
    const bool image = is_image_token(token);
    if (image && (run == runs.size() || runs[run].first != token)) return std::nullopt;
    counts.push_back(image ? runs[run++].second : 1);
  }
  return run == runs.size() ? std::optional(std::move(counts)) : std::nullopt;
}

Result<std::vector<std::int32_t>> ImageExpander::encode(std::string_view text, std::span<const ExpandedImage> images,
                                                        const Tokenizer& tokenizer, bool begin) const {
  const std::vector<std::int32_t> shown = tokenizer.encode_text(insert(text, images), begin);
  const std::size_t found = places(text);
  const auto counts = repeats(shown, images);
  if (found != images.size() || !counts) {
    return Error{ErrorCode::invalid_argument, "the template's text has " + std::to_string(found) + " places " +
                                                  placeholders() + " for " + std::to_string(images.size()) + " " +
                                                  nouns_ + "; a text that spells it is not a place"};
  }
  std::vector<std::int32_t> tokens;
  for (std::size_t at = 0; at < shown.size(); ++at) {
    tokens.insert(tokens.end(), static_cast<std::size_t>((*counts)[at]), shown[at]);
  }
  return tokens;
}

std::string ImageExpander::settings() const {
  return "image token " + std::to_string(image_token_) + " " + image_text_ + "\n" + around_ + "\n" + global_ + "\n" +
         counting_.stated + "\n" + before_ + after_ +
         (sound_token_ ? "\nsound token " + std::to_string(*sound_token_) + " " + sound_text_ : "");
}

}  // namespace maestro
