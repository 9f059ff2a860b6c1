// SPDX-License-Identifier: Apache-2.0
// `maestro look FOLDER FILE`: how a model sees an image, or hears a sound: its tiles or frames, rows and text.
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/maestro/commands.hpp"
#include "apps/maestro/number_options.hpp"
#include "runtime/core/hub_cache.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/dataset/image_model.hpp"
#include "runtime/files/atomic_file.hpp"
#include "runtime/observe/printed_line.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

namespace {

namespace fs = std::filesystem;

struct LookArguments {
  std::string model;
  std::string image;
  std::string tiles;  ///< a folder
  std::string resample_order = "pillow13";
  std::int64_t images = 1;
};

std::string pixels(ImageSize size) {
  return std::to_string(size.width) + " x " + std::to_string(size.height);
}

/// Returns the sizes that the image takes on its way to the tiles.
std::string way_of(const ImagePlan& plan) {
  std::string text = pixels(plan.source);
  for (const ImageStage& stage : plan.stages) {
    text += stage.from == 0 ? " -> " : stage.from == 1 ? ", then -> " : ", from " + std::to_string(stage.from) + " -> ";
    text += pixels(stage.resized);
    if (stage.canvas != stage.resized) text += " on " + pixels(stage.canvas);
  }
  return text;
}

std::string tiles_of(const ImagePlan& plan) {
  std::string text = std::to_string(plan.tiles.size()) + (plan.tiles.size() == 1 ? " tile of " : " tiles of ") +
                     pixels(plan.tiles.front().size) + " pixels";
  if (plan.cut.rows == 0) return text;
  return text + ": " + std::to_string(plan.cut.rows) + " rows of " + std::to_string(plan.cut.columns) +
         ", and the whole image";
}

/// Returns ids, with runs of the image token counted.
std::string ids_of(std::span<const std::int32_t> tokens, const ExpandedImage& image, std::int32_t image_token) {
  std::string text;
  std::size_t run = 0;
  for (const std::int32_t token : tokens) {
    text += (text.empty() ? "" : " ") + std::to_string(token);
    if (token == image_token) text += " (" + std::to_string(image.runs.at(run++)) + " times)";
  }
  return text;
}

/// Returns the text, with runs of the image token counted.
std::string text_of(const ExpandedImage& image, const std::string& token) {
  std::string text;
  std::string_view left = image.text;
  for (const std::int64_t run : image.runs) {
    const std::size_t at = left.find(token) + token.size();
    text.append(left.substr(0, at)).append(" (" + std::to_string(run) + " times)");
    left.remove_prefix(at);
  }
  return text.append(left);
}

void write_tiles(const std::vector<Image>& tiles, const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) throw JobError("look: cannot make " + printable(folder.string()) + ": " + failure.message());
  for (std::size_t at = 0; at < tiles.size(); ++at) {
    char name[32];
    (void)std::snprintf(name, sizeof name, "tile-%03zu.png", at);
    (void)write_file(folder / name, encode_png(tiles[at]).value_or_throw()).value_or_throw();
  }
}

/// Prints the way of an image to its tiles.
void print_image(const LookArguments& arguments, const ImagePlan& plan) {
  PrintedLine() << "image       " << printable(arguments.image) << ": " << way_of(plan);
  PrintedLine() << "tiles       " << tiles_of(plan);
}

/// Prints a sound's duration and frames.
void print_sound(const LookArguments& arguments, const SoundSettings& settings, const SoundFormat& format) {
  char seconds[32];
  (void)std::snprintf(seconds, sizeof seconds, "%.2f",
                      static_cast<double>(format.samples) / static_cast<double>(format.rate));
  PrintedLine() << "sound       " << printable(arguments.image) << ": " << seconds << " s, " << format.samples
                << " samples at " << format.rate << " Hz, "
                << (format.channels == 1 ? "1 channel" : std::to_string(format.channels) + " channels");
  PrintedLine() << "frames      " << (format.samples + settings.hop - 1) / settings.hop << " of " << settings.mels
                << " mel bands; the model takes up to " << settings.seconds << " s";
}

int run_look(const LookArguments& arguments, Console&) {
  const fs::path folder = find_model(arguments.model).value_or_throw();
  const auto tokenizer = make_tokenizer(folder.string());
  const PassOrder order = arguments.resample_order == "horizontal" ? PassOrder::horizontal : PassOrder::pillow13;
  const ImageModel model = read_image_model(folder, *tokenizer, order).value_or_throw();
  const MediaProcessor& processor = model.processor;
  const Medium& medium = medium_of(fs::path(arguments.image), processor.media());
  const ImageSize size = media_size(fs::path(arguments.image), medium).value_or_throw();
  Result<ImagePlan> planned = processor.plan(size, arguments.images, medium.modality);
  if (!planned && medium == sound_medium) {
    throw JobError(printable(arguments.image) + " is " + planned.error().message);
  }
  const ImagePlan plan = std::move(planned).value_or_throw();
  const MediaContent content = processor.decode(fs::path(arguments.image), plan).value_or_throw();
  const ExpandedImage text = model.expander.expand(plan).value_or_throw();
  if (medium == image_medium) {
    print_image(arguments, plan);
  } else {
    const SoundFormat format = read_sound_format(fs::path(arguments.image)).value_or_throw();
    print_sound(arguments, processor.sounds()->settings(), format);
  }
  const std::int32_t token = medium == sound_medium
                                 ? model.expander.sound_token().value_or(model.expander.image_token())
                                 : model.expander.image_token();
  PrintedLine() << "rows        " << plan.encoder_rows << " of the encoder, " << plan.visual_rows << " of the decoder";
  PrintedLine() << "text        " << nlohmann::json(text_of(text, tokenizer->piece(token))).dump();
  PrintedLine() << "tokens      " << ids_of(tokenizer->encode(text.text), text, token);
  if (!arguments.tiles.empty()) {
    if (medium == sound_medium) throw JobError("look --tiles: a sound is not cut into tiles");
    write_tiles(std::get<std::vector<Image>>(content), arguments.tiles);
    PrintedLine() << "written     " << printable(arguments.tiles) << ": " << plan.tiles.size() << " PNG files";
  }
  std::cout.flush();
  return std::cout ? 0 : 1;
}

}  // namespace

void add_look(Commands& commands) {
  const auto [command, arguments] = commands.add(
      "look", "show how a model sees an image or hears a sound: tiles or frames, rows, text and tokens", run_look);
  command.add_option("model", arguments.model, "a model's folder or its name in the hub's cache")->required();
  command.add_option("image", arguments.image, "an image (PNG, JPEG, WebP), or a sound (WAV, FLAC)")->required();
  command.add_option("--tiles", arguments.tiles, "write the tiles as PNG files into this folder");
  command
      .add_option("--images", arguments.images,
                  "the number of images in the conversation, which changes the tiles of some models (default: 1)")
      ->check(whole_number(1));
  command
      .add_option("--resample-order", arguments.resample_order,
                  "the order of passes when images are resized: pillow13 (default), or horizontal")
      ->transform(CLI::IsMember({"pillow13", "horizontal"}));
}

}  // namespace maestro
