// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/synthetic/scene_dataset.hpp"

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "runtime/core/result.hpp"
#include "runtime/files/atomic_file.hpp"

namespace maestro {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr int generator_version = 2;  // of the generator: raise it if the same options draw other samples

std::string stamp_of(const SceneDatasetOptions& options) {
  const Json stamp{{"format", generator_version},
                   {"seed", options.scenes.seed},
                   {"image_size", options.scenes.image_size},
                   {"jitter", options.scenes.jitter},
                   {"picture_share", options.scenes.picture_share},
                   {"train_samples", options.train_samples},
                   {"validation_samples", options.validation_samples}};
  return stamp.dump() + "\n";
}

bool holds(const fs::path& file, const std::string& content) {
  std::ifstream stream(file, std::ios::binary);
  return stream && std::string(std::istreambuf_iterator<char>(stream), {}) == content;
}

/// Writes a file without syncing it to the disk: only the stamp marks the files as complete (SD-1).
void write_image(const fs::path& file, const Image& image) {
  const std::string bytes = encode_png(image).value_or_throw();
  errno = 0;
  std::ofstream stream(file, std::ios::binary);
  if (!stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush()) {
    throw JobError("cannot write " + file.string() + ": " + std::generic_category().message(errno),
                   ErrorCode::unavailable);
  }
}

Json turn(const char* from, std::string value) {
  return {{"from", from}, {"value", std::move(value)}};
}

/// Returns an entry of the JSON file and writes its images.
Json entry_of(const fs::path& images, const std::string& id, const SceneSample& sample) {
  Json names = Json::array();
  std::string question;
  for (const Image& image : sample.pictures) {
    const std::string name = id + (sample.pictures.size() > 1 ? std::string(names.empty() ? "-a" : "-b") : "") + ".png";
    write_image(images / name, image);
    names.push_back(name);
    question += "<image>";
  }
  question += (question.empty() ? "" : "\n") + sample.question;
  Json entry{{"id", id}};
  if (!names.empty()) entry["image"] = names;
  entry["conversations"] = Json::array({turn("human", std::move(question)), turn("gpt", sample.answer)});
  return entry;
}

void write_split(const fs::path& folder, Split split, std::uint64_t samples, const SceneGenerator& scenes) {
  const std::string name = split == Split::train ? "train" : "validation";
  auto file = AtomicFile::create(folder / (name + ".json")).value_or_throw();
  for (std::uint64_t number = 0; number < samples; ++number) {
    const std::string id = name + "-" + std::to_string(number);
    const Json entry = entry_of(folder / "images", id, scenes.draw(split, number));
    file.write((number == 0 ? "[\n" : ",\n") + entry.dump()).or_throw();
  }
  file.write(std::string_view("\n]\n")).or_throw();
  (void)file.commit().value_or_throw();
}

void make_empty(const fs::path& folder) {
  std::error_code failed;
  fs::remove(folder / "scenes.json", failed);
  if (!failed) fs::remove_all(folder / "images", failed);  // else images of a longer data set would remain
  if (!failed) fs::create_directories(folder / "images", failed);
  if (failed) throw JobError("cannot prepare " + folder.string() + ": " + failed.message(), ErrorCode::unavailable);
}

}  // namespace

SceneDataset write_scene_dataset(const fs::path& folder, const SceneDatasetOptions& options) {
  if (options.train_samples == 0 || options.validation_samples == 0) {
    throw JobError("scenes: there must be at least one training and one validation sample");
  }
  const SceneGenerator scenes(options.scenes);
  const std::string stamp = stamp_of(options);
  SceneDataset out{folder / "train.json", folder / "validation.json", false};
  std::error_code ignored;
  if (holds(folder / "scenes.json", stamp) && fs::exists(out.train, ignored) && fs::exists(out.validation, ignored)) {
    return out;
  }
  make_empty(folder);
  write_split(folder, Split::validation, options.validation_samples, scenes);
  write_split(folder, Split::train, options.train_samples, scenes);
  (void)write_file(folder / "scenes.json", stamp).value_or_throw();
  out.written = true;
  return out;
}

}  // namespace maestro
