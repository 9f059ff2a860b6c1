// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/image_model.hpp"

#include "runtime/files/checksum.hpp"
#include "runtime/model/hf_config.hpp"

namespace maestro {

namespace fs = std::filesystem;

std::string ImageModel::fingerprint() const {
  return checksum_of(processor.fingerprint() + "\n" + expander.settings());
}

Result<ImageModel> read_image_model(const fs::path& folder, const Tokenizer& tokenizer, PassOrder order) {
  Result<MediaProcessor> processor = MediaProcessor::read(folder, order);
  if (!processor) return processor.error();
  const ImageProcessor* images = processor->images();
  Result<ImageExpander> expander =
      ImageExpander::read(folder, tokenizer, images != nullptr ? images->encoder() : EncoderGrid());
  if (!expander) return expander.error();
  const Result<DecoderConfig> decoder = read_hf_config(folder);
  if (!decoder) return decoder.error();
  return ImageModel{*std::move(processor), *std::move(expander), decoder->image_mask, decoder->positions};
}

ImageModel image_model_of(const ScaledTile& tile, const ReservedTokens& tokens) {
  const std::int32_t token = tokens.image_token();
  return {scaled_processor(tile), ImageExpander::of_token(token, tokens.piece(token))};
}

std::vector<std::string> image_model_files(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (const char* name :
       {"config.json", "preprocessor_config.json", "processor_config.json", "tokenizer_config.json"}) {
    if (fs::exists(folder / name, ignored)) files.emplace_back(name);
  }
  return files;
}

}  // namespace maestro
