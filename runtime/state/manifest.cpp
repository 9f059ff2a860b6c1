#include "runtime/state/manifest.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/core/json_text.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/state/checksum.hpp"
#include "runtime/state/posix_file.hpp"

namespace maestro {

using nlohmann::json;

namespace {

constexpr std::int64_t format_version = 1;

/// A manifest may come from anywhere; its files may not.
bool stays_inside(const std::string& path) {
  const std::filesystem::path relative(path);
  return !path.empty() && relative.is_relative() &&
         std::ranges::none_of(relative, [](const auto& part) { return part == ".."; });
}

Error corrupt(std::string_view where, const std::string& what) {
  return {ErrorCode::corrupt, std::string(where) + ": " + what};
}

/// Throws JobError for a value that is no whole number of 64 bits; get() would convert it to another one.
std::uint64_t count_at(const json& object, const char* key) {
  const json& value = object.at(key);
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  throw JobError(std::string("has ") + key + " = " + shown(value) + ", which is no whole number from 0 to 2^64 - 1");
}

/// Throws json::exception for a key that is missing or of the wrong type, JobError as count_at.
Manifest manifest_of(const json& object) {
  Manifest manifest;
  manifest.step = count_at(object, "step");
  manifest.seed = count_at(object, "seed");
  manifest.data_position = count_at(object, "data_position");
  manifest.epoch = count_at(object, "epoch");
  manifest.random_state = object.at("random_state").get<std::vector<std::uint64_t>>();
  manifest.sequence = count_at(object, "sequence");
  manifest.maestro_version = object.at("maestro_version").get<std::string>();
  for (const json& file : object.at("files")) {
    manifest.files.push_back(
        {file.at("path").get<std::string>(), count_at(file, "bytes"), file.at("xxh3_128").get<std::string>()});
  }
  return manifest;
}

}  // namespace

std::vector<std::string> Manifest::sections() const {
  std::vector<std::string> names;
  for (const FileRecord& file : files) {
    const std::size_t slash = file.path.find('/');
    if (slash == std::string::npos) continue;
    std::string name = file.path.substr(0, slash);
    if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
  }
  return names;
}

std::string manifest_text(const Manifest& manifest) {
  json files = json::array();
  for (const FileRecord& file : manifest.files) {
    files.push_back({{"path", file.path}, {"bytes", file.bytes}, {"xxh3_128", file.checksum}});
  }
  json object = {{"format_version", format_version},
                 {"step", manifest.step},
                 {"seed", manifest.seed},
                 {"data_position", manifest.data_position},
                 {"epoch", manifest.epoch},
                 {"random_state", manifest.random_state},
                 {"sequence", manifest.sequence},
                 {"maestro_version", manifest.maestro_version},
                 {"files", std::move(files)}};
  // Over the compact form without this key, which sorted keys make the same for every reader.
  object["self_xxh3_128"] = checksum_of(object.dump());
  return object.dump(2) + "\n";
}

Result<Manifest> parse_manifest(std::string_view text, std::string_view where) {
  try {
    Result<json> parsed = parse_json(text, std::string(where));
    if (!parsed) return parsed.error();
    json object = *std::move(parsed);
    if (!object.is_object()) return corrupt(where, "is not a JSON object");
    const json version = object.value("format_version", json());
    if (version.is_number_integer() && version > format_version) {
      return Error{ErrorCode::invalid_argument, std::string(where) + ": format_version " + shown(version) +
                                                    " is newer than this program, which reads up to " +
                                                    std::to_string(format_version)};
    }
    const std::string stored = object.value("self_xxh3_128", json()).dump();
    object.erase("self_xxh3_128");
    if (stored != "\"" + checksum_of(object.dump()) + "\"") return corrupt(where, "was altered: its checksum is wrong");
    Manifest manifest = manifest_of(object);
    for (const FileRecord& file : manifest.files) {
      if (!stays_inside(file.path))
        return corrupt(where, "names a file outside the checkpoint: " + printable(file.path));
    }
    return manifest;
  } catch (const JobError& error) {
    return corrupt(where, error.what());
  } catch (const json::exception& error) {
    return corrupt(where, std::string("lacks a key or has one of the wrong type: ") + printable(error.what()));
  }
}

Result<Manifest> load_manifest(const std::filesystem::path& checkpoint) {
  const std::filesystem::path file = checkpoint / manifest_file;
  const Result<std::string> text = read_text(file);
  if (!text) return text.error();
  return parse_manifest(*text, file.string());
}

}  // namespace maestro
