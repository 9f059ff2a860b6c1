// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/prepared_data.hpp"

#include <algorithm>
#include <array>

#include "runtime/core/input_file.hpp"
#include "runtime/core/json_value.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/dataset/reserved_tokens.hpp"
#include "runtime/dataset/tar_rows.hpp"
#include "runtime/files/atomic_file.hpp"
#include "runtime/files/checksum.hpp"

namespace maestro {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr int version = 1;

ordered_json json_of(const PreparedShard& shard) {
  return {{"file", shard.file},
          {"documents", shard.documents},
          {"tokens", shard.tokens},
          {"learned", shard.learned},
          {"checksum", shard.checksum}};
}

PreparedShard shard_of(const JsonValue& value) {
  return {value.at("file").text(), value.at("documents").count(), value.at("tokens").count(),
          value.at("learned").count(), value.at("checksum").text()};
}

constexpr std::array<const char*, 3> container_names{"folder", "archive", "shard"};
constexpr std::array<const char*, 2> order_names{"pillow13", "horizontal"};

ordered_json json_of(const PreparedImages& images) {
  ordered_json containers = ordered_json::array();
  for (const ImageContainer& each : images.containers) {
    containers.push_back({{"kind", container_names[static_cast<std::size_t>(each.kind)]}, {"path", each.path}});
  }
  ordered_json made{{"processor", images.processor},
                    {"fingerprint", images.processor_fingerprint},
                    {"resample_order", order_names[static_cast<std::size_t>(images.resample_order)]},
                    {"image_token", images.image_token},
                    {"containers", std::move(containers)}};
  if (images.sound_token) made["sound_token"] = *images.sound_token;
  if (const auto& scaled = images.scaled) {
    made["scaled"] = {
        {"patch", scaled->patch}, {"image_size", scaled->image_size}, {"max_image_size", scaled->max_image_size}};
  }
  return made;
}

PreparedImages images_of(const JsonValue& value) {
  using Kind = ImageContainer::Kind;
  PreparedImages images;
  images.processor = value.at("processor").text();
  images.processor_fingerprint = value.at("fingerprint").text();
  images.resample_order =
      value.at("resample_order")
          .choice<PassOrder>({{order_names[0], PassOrder::pillow13}, {order_names[1], PassOrder::horizontal}});
  images.image_token = static_cast<std::int32_t>(value.at("image_token").whole_number(0, INT32_MAX));
  if (const JsonValue sound = value.find("sound_token")) {
    images.sound_token = static_cast<std::int32_t>(sound.whole_number(0, INT32_MAX));
  }
  for (const JsonValue& each : value.at("containers").items()) {
    images.containers.push_back({each.at("kind").choice<Kind>({{container_names[0], Kind::folder},
                                                               {container_names[1], Kind::archive},
                                                               {container_names[2], Kind::shard}}),
                                 each.at("path").text()});
  }
  if (const JsonValue scaled = value.find("scaled")) {
    const auto side = [&](const char* key, std::int64_t least) {
      return scaled.at(key).whole_number(least, largest_image_side);
    };
    images.scaled = ScaledTile{side("patch", 1), side("image_size", 0), side("max_image_size", 1)};
  }
  return images;
}

ordered_json json_of(const PreparedSource& source) {
  return {{"path", source.path}, {"bytes", source.bytes}, {"format", source.format}, {"documents", source.documents}};
}

PreparedIndex index_of(const JsonValue& value) {
  if (value.at("version").json() != version) {
    value.at("version").refuse("is not " + std::to_string(version) + "; prepare the data again");
  }
  PreparedIndex index;
  const JsonValue tokenizer = value.at("tokenizer");
  index.tokenizer = tokenizer.at("name").text();
  index.tokenizer_fingerprint = tokenizer.at("fingerprint").text();
  index.vocabulary = tokenizer.at("vocabulary").whole_number(0, INT32_MAX);
  index.conversations = value.at("conversations").flag();
  index.settings = value.at("settings").texts_by_key();
  for (const auto& [name, count] : value.at("counts").members()) index.counts[name] = count.count();
  for (const JsonValue& each : value.at("sources").items()) {
    index.sources.push_back(
        {each.at("path").text(), each.at("bytes").count(), each.at("format").text(), each.at("documents").count()});
  }
  if (const JsonValue images = value.find("images")) index.images = images_of(images);
  for (const JsonValue& each : value.at("train").items()) index.train.push_back(shard_of(each));
  for (const JsonValue& each : value.at("validation").items()) index.validation.push_back(shard_of(each));
  return index;
}

}  // namespace

std::string PreparedImages::description() const {
  if (!scaled) return processor;
  const std::string sides = scaled->image_size > 0 ? std::to_string(scaled->image_size) + " pixels"
                                                   : "up to " + std::to_string(scaled->max_image_size) + " pixels";
  return "images of " + sides + " in patches of " + std::to_string(scaled->patch);
}

std::unique_ptr<Tokenizer> make_prepared_tokenizer(const std::string& name,
                                                   const std::optional<PreparedImages>& images) {
  std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(name);
  if (images && images->scaled) return std::make_unique<ReservedTokens>(std::move(tokenizer));
  return tokenizer;
}

bool PreparedIndex::holds_texts() const {
  const auto found = settings.find("template");
  return !conversations || (found != settings.end() && found->second == "none");
}

std::optional<std::string> PreparedIndex::begin_of_text() const {
  const auto found = settings.find(begin_of_text_setting);
  return found == settings.end() ? std::optional<std::string>() : found->second;
}

Status write_prepared_index(const fs::path& folder, const PreparedIndex& index) {
  ordered_json value{
      {"version", version},
      {"tokenizer",
       {{"name", index.tokenizer}, {"fingerprint", index.tokenizer_fingerprint}, {"vocabulary", index.vocabulary}}},
      {"conversations", index.conversations},
      {"settings", index.settings},
      {"sources", ordered_json::array()},
      {"counts", index.counts},
      {"train", ordered_json::array()},
      {"validation", ordered_json::array()}};
  if (index.images) value["images"] = json_of(*index.images);
  for (const PreparedSource& source : index.sources) value["sources"].push_back(json_of(source));
  for (const PreparedShard& shard : index.train) value["train"].push_back(json_of(shard));
  for (const PreparedShard& shard : index.validation) value["validation"].push_back(json_of(shard));
  const std::string text = value.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  const Result<WrittenFile> written = write_file(folder / prepared_index_file, text);
  return written ? Status() : Status(written.error());
}

Result<PreparedIndex> read_prepared_index(const fs::path& folder) {
  const fs::path file = folder / prepared_index_file;
  std::error_code ignored;
  if (!fs::exists(file, ignored)) {
    return Error{ErrorCode::not_found, printable(folder.string()) +
                                           " has no data.json: it is not a folder that `maestro prepare` wrote, or the "
                                           "preparation did not end"};
  }
  Result<std::string> text = read_text(file);
  if (!text) return text.error();
  return read_json(*text, printable(file.string()), ErrorCode::corrupt, index_of);
}

Result<PreparedShardFile> PreparedShardFile::open(const fs::path& folder, const PreparedShard& index,
                                                  bool conversations) {
  const fs::path path = folder / index.file;
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file) return file.error();
  PreparedShardFile made(*std::move(file));
  const auto corrupt = [&](const std::string& reason) {
    return Error{ErrorCode::corrupt, printable(path.string()) + ": " + reason + "; prepare the data again"};
  };
  const auto find = [&](const char* name, auto& span) -> Status {
    using Element = typename std::remove_reference_t<decltype(span)>::value_type;
    Result<ConstTensor> tensor = made.file_.tensor(name);
    if (!tensor) return tensor.error();
    if (tensor->dtype() != dtype_of<Element>) return corrupt(std::string(name) + " has another dtype");
    span = tensor->span<Element>();
    return {};
  };
  Result<ConstTensor> tokens = made.file_.tensor("tokens");
  if (!tokens) return tokens.error();
  Status found = tokens->dtype() == DType::u16 ? find("tokens", made.narrow_) : find("tokens", made.wide_);
  if (found) found = find("offsets", made.offsets_);
  if (found) found = find("source", made.source_);
  if (found && conversations) found = find("learned", made.learned_);
  if (found && conversations) found = find("first_learned", made.first_learned_);
  if (!found) return found.error();
  if (made.offsets_.empty()) return corrupt("offsets is empty");
  for (const Modality modality : modalities) {
    Result<ImageTable> images = ImageTable::read(made.file_, made.documents(), modality);
    if (!images) return corrupt(images.error().message);
    (modality == Modality::image ? made.images_ : made.sounds_) = *std::move(images);
  }
  const Status fits = made.check(index, static_cast<std::size_t>(tokens->elements()), conversations);
  if (!fits) return corrupt(fits.error().message);
  return made;
}

Status PreparedShardFile::check(const PreparedShard& index, std::size_t tokens, bool conversations) const {
  const auto wrong = [](const char* what) { return Error{ErrorCode::corrupt, what}; };
  if (index.tokens != tokens || index.documents + 1 != offsets_.size() || index.documents != source_.size()) {
    return wrong("its numbers of documents or tokens differ from data.json");
  }
  if (offsets_.front() != 0 || offsets_.back() != static_cast<std::int64_t>(tokens)) {
    return wrong("offsets do not cover the tokens");
  }
  if (conversations && (learned_.size() != tokens || first_learned_.size() != source_.size())) {
    return wrong("targets do not fit the tokens");
  }
  return {};
}

void PreparedShardFile::read(std::int64_t begin, std::span<std::int32_t> tokens) const {
  const auto first = static_cast<std::size_t>(begin);
  if (!narrow_.empty()) std::ranges::copy(narrow_.subspan(first, tokens.size()), tokens.begin());
  if (!wide_.empty()) std::ranges::copy(wide_.subspan(first, tokens.size()), tokens.begin());
}

std::span<const std::uint8_t> PreparedShardFile::learned(std::int64_t begin, std::int64_t count) const {
  if (learned_.empty()) return {};
  return learned_.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
}

Status verify_prepared_shard(const fs::path& folder, const PreparedShard& index, bool conversations) {
  Result<PreparedShardFile> shard = PreparedShardFile::open(folder, index, conversations);
  if (!shard) return shard.error();
  const std::int64_t count = shard->tokens();
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  shard->read(0, tokens);
  std::vector<std::int64_t> offsets;
  for (std::uint64_t at = 0; at <= shard->documents(); ++at) offsets.push_back(shard->begin(at));
  const std::string checksum =
      shard_checksum(tokens, shard->learned(0, count), offsets, {shard->images().offsets(), shard->images().values()},
                     {shard->images(Modality::sound).offsets(), shard->images(Modality::sound).values()});
  if (checksum == index.checksum) return {};
  return Error{ErrorCode::corrupt,
               printable((folder / index.file).string()) + " is damaged: its checksum differs; prepare the data again"};
}

std::string shard_checksum(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> learned,
                           std::span<const std::int64_t> offsets, const TableContent& images,
                           const TableContent& sounds) {
  Checksum content;
  content.add(std::as_bytes(tokens));
  content.add(std::as_bytes(learned));
  content.add(std::as_bytes(offsets));
  content.add(std::as_bytes(images.first));
  content.add(std::as_bytes(images.second));
  content.add(std::as_bytes(sounds.first));
  content.add(std::as_bytes(sounds.second));
  return content.text();
}

std::uint64_t PreparedShardFile::document_of(std::int64_t token) const {
  return static_cast<std::uint64_t>(std::ranges::upper_bound(offsets_, token) - offsets_.begin()) - 1;
}

std::string image_name(const PreparedImages& images, const ImagePlace& place) {
  const ImageContainer& container = images.containers.at(static_cast<std::size_t>(place.container));
  if (container.kind == ImageContainer::Kind::folder)
    return printable((fs::path(container.path) / place.name).string());
  return printable(container.path + ": " +
                   (place.name.empty() ? "the image at byte " + std::to_string(place.position) : place.name));
}

Result<std::string> read_prepared_image(const fs::path& folder, const PreparedImages& images, const ImagePlace& place,
                                        std::int64_t bytes) {
  const std::string name = image_name(images, place);
  const ImageContainer& container = images.containers.at(static_cast<std::size_t>(place.container));
  const fs::path path = container.kind == ImageContainer::Kind::shard    ? folder / container.path
                        : container.kind == ImageContainer::Kind::folder ? fs::path(container.path) / place.name
                                                                         : fs::path(container.path);
  if (container.kind == ImageContainer::Kind::archive) {
    Result<std::string> content = read_tar_image(path, place.position);
    if (!content || std::ssize(*content) == bytes) return content;
    return Error{ErrorCode::corrupt, name + " has " + std::to_string(content->size()) + " bytes, not the " +
                                         std::to_string(bytes) + " of the preparation; prepare the data again"};
  }
  const Result<FileDescriptor> descriptor = open_for_reading(path);
  if (!descriptor) return descriptor.error();
  std::error_code failure;
  const std::uintmax_t size = fs::file_size(path, failure);
  const bool whole = container.kind == ImageContainer::Kind::folder;
  const auto expected = static_cast<std::uintmax_t>(place.position + bytes);
  if (failure || (whole ? size != expected : size < expected)) {
    return Error{ErrorCode::corrupt, name + " has changed since the data were prepared (" + std::to_string(size) +
                                         " bytes instead of " + std::to_string(expected) + "); prepare them again"};
  }
  return read_at(*descriptor, path, static_cast<std::uint64_t>(place.position), static_cast<std::size_t>(bytes));
}

void PreparedShardFile::release() const {
  for (const std::string& name : file_.names()) file_.release(name);
}

}  // namespace maestro
