// SPDX-License-Identifier: Apache-2.0
// The text that stands for an image in the prompts of a vision-language model, as transformers' processors write it:
//   smolvlm, idefics3   for each row of tiles its tiles as <fake_token_around_image><row_R_col_C><image>..., then a
//                       newline; after the last row a newline and the uncut image as
//                       <fake_token_around_image><global-img><image>...<fake_token_around_image>
//   llava               <image>...
//   llava_onevision     <image>...
//   internvl            <img><IMG_CONTEXT>...</img>
//   qwen2_vl, qwen2_5_vl, qwen3_vl  <|image_pad|>..., between the tokens that the template writes
//   gemma3              an empty line, the begin-of-image token, <image>..., the end-of-image token, an empty line
//   paligemma           <image>...
//   qwen2_audio, voxtral  <|AUDIO|>... or [AUDIO]..., of a sound, between the tokens that the template writes
//   qwen2_5_omni, and its thinker  <|IMAGE|>... and <|AUDIO|>..., between the tokens that the template writes
// with as many image tokens as the decoder receives rows.
//
// IE-1 (same tokens): if the i-th placeholder of a template's text is replaced by the i-th image's text, the text has
//       the tokens of transformers' processors.
// IE-2 (rows): an image has as many image tokens as its plan has visual_rows. Otherwise processor and model disagree,
//       which is an error with both numbers.
// IE-3 (keys): every key of processor_config.json is used, known to be without effect, or refused by its name.
// IE-4 (kinds): if the model reads images and sounds, a place receives a text of its kind, in the order of the record.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/images/image_plan.hpp"
#include "runtime/images/image_settings.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

/// The text of an image. A single image token stands for each run of image tokens: it is a special token, so the length
/// of a run does not change the tokens around it.
struct ExpandedImage {
  std::string text;
  std::vector<std::int64_t> runs;  ///< lengths of the runs, in the order of the text
  Modality modality = Modality::image;
};

/// Immutable; any thread.
class ImageExpander {
 public:
  /// Reads model_type and the image token of config.json, the numbers of processor_config.json and the names of tokens
  /// in tokenizer_config.json. Absent keys have the defaults of transformers' classes. Errors (invalid_argument,
  /// not_found) name file and key: another model_type, an unknown key, an image token that `tokenizer` lacks, another
  /// number of tiles than the encoder's.
  [[nodiscard]] static Result<ImageExpander> read(const std::filesystem::path& folder, const Tokenizer& tokenizer,
                                                  const EncoderGrid& encoder);

  /// Returns an expander to `image_token` for each row, which the tokenizer spells `image_text`.
  [[nodiscard]] static ImageExpander of_token(std::int32_t image_token, std::string image_text);

  /// Returns the text of an image with this plan. The error (invalid_argument) is IE-2's.
  [[nodiscard]] Result<ExpandedImage> expand(const ImagePlan& plan) const;

  /// Returns a template's text after each image's text has replaced the next placeholder for its kind.
  [[nodiscard]] std::string insert(std::string_view text, std::span<const ExpandedImage> images) const;
  /// Returns the tokens of insert(), with image_token() once for each row of the images, and with `begin` after those
  /// that begin a text, unless the text spells them. Errors (invalid_argument):
  /// another number of placeholders in the text than of images, a text that spells an image token.
  [[nodiscard]] Result<std::vector<std::int32_t>> encode(std::string_view text, std::span<const ExpandedImage> images,
                                                         const Tokenizer& tokenizer, bool begin = true) const;

  /// Returns the number of placeholders in a template's text.
  [[nodiscard]] std::size_t places(std::string_view text) const;
  /// Returns how often each of these tokens of insert() stands: an image token as often as its run is long. Nothing for
  /// other runs than the images'.
  [[nodiscard]] std::optional<std::vector<std::int64_t>> repeats(std::span<const std::int32_t> tokens,
                                                                 std::span<const ExpandedImage> images) const;
  /// Returns whether positions with this token receive rows.
  [[nodiscard]] bool is_image_token(std::int32_t token) const {
    return token == image_token_ || (sound_token_ && token == *sound_token_);
  }

  /// Returns the token whose positions receive rows of images, or of sounds if the model reads no images.
  [[nodiscard]] std::int32_t image_token() const { return image_token_; }
  /// Returns the token of sounds if the model reads images, too.
  [[nodiscard]] std::optional<std::int32_t> sound_token() const { return sound_token_; }
  /// Returns this token as the tokenizer spells it.
  [[nodiscard]] const std::string& image_text() const { return image_text_; }
  /// Returns the text that a chat template writes for an image: the image token as the tokenizer spells it, or for
  /// gemma3 the begin-of-image token.
  [[nodiscard]] const std::string& placeholder() const { return placeholder_; }
  [[nodiscard]] const std::string& placeholder(Modality modality) const {
    return sound_token_ && modality == Modality::sound ? sound_text_ : placeholder_;
  }
  /// Returns all placeholders, for messages: "<image>", "<|IMAGE|> or <|AUDIO|>".
  [[nodiscard]] std::string placeholders() const;
  /// Returns a text with all settings, for fingerprints.
  [[nodiscard]] std::string settings() const;
  /// Returns the supported values of model_type.
  [[nodiscard]] static std::vector<std::string> model_types();

 private:
  /// The number of an image's tokens as processor_config.json states it.
  struct Counting {
    std::int64_t tile = 0;   ///< tokens of a tile; 0: not stated
    bool each_tile = false;  ///< a run has `tile` tokens for each tile of an image
    std::int64_t patch = 0;  ///< side of a patch that is a token, pixels; 0: not stated
    std::int64_t more = 0;   ///< tokens in addition to patches
    std::string stated;      ///< keys and values, for messages
  };
  struct Reader;

  [[nodiscard]] std::vector<std::int64_t> runs_of(const ImagePlan& plan) const;
  [[nodiscard]] std::int32_t token_of(const ExpandedImage& image) const {
    return sound_token_ && image.modality == Modality::sound ? *sound_token_ : image_token_;
  }

  std::string file_;  // processor_config.json
  std::string nouns_ = "images";
  bool tagged_ = false;
  std::int32_t image_token_ = 0;
  std::string image_text_;  // the image token as the tokenizer spells it
  std::string placeholder_;
  std::string around_;  // token around a tile; tagged
  std::string global_;  // token before the uncut image; tagged
  std::string before_;  // text before an image
  std::string after_;   // text after an image
  Counting counting_;
  std::optional<std::int32_t> sound_token_;  // of a model that reads images, too
  std::string sound_text_;
};

}  // namespace maestro
