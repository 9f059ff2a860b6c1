// SPDX-License-Identifier: Apache-2.0
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
// Far above any run, so that no arithmetic on them overflows.
constexpr std::uint64_t most_steps = std::uint64_t{1} << 40;
constexpr std::uint64_t most_positions = std::uint64_t{1} << 60;
constexpr std::size_t most_segments = 65536;  // of a run that has left out samples as often
constexpr std::uint64_t most_ahead = 65536;   // steps; train.ahead is at most 1024

/// A manifest may come from anywhere; its files may not.
bool stays_inside(const std::string& path) {
  const std::filesystem::path relative(path);
  return !path.empty() && relative.is_relative() &&
         std::ranges::none_of(relative, [](const auto& part) { return part == ".."; });
}

/// Text that is not UTF-8, such as a setting of the command line, is replaced rather than thrown at.
std::string dumped(const json& object, int indent = -1) {
  return object.dump(indent, ' ', false, json::error_handler_t::replace);
}

bool has_valid_id(const RunIdentity& run) {
  return run.id.empty() || is_run_id(run.id);
}

Error corrupt(std::string_view where, const std::string& what) {
  return {ErrorCode::corrupt, std::string(where) + ": " + what};
}

/// Throws json::exception for a key of the wrong type.
RunIdentity run_identity_of(const json& object) {
  return {object.value("run_id", ""), object.value("job", ""), object.value("started", "")};
}

std::uint64_t count_at(const json& object, const char* key) {
  return whole_number(object.at(key), key);
}

std::vector<std::array<std::uint64_t, 2>> cursor_of(const json& object) {
  const json segments = object.value("cursor", json::array());
  if (segments.size() > most_segments) {
    throw JobError("has a cursor of " + std::to_string(segments.size()) + " segments; at most " +
                   std::to_string(most_segments) + " are read");
  }
  std::vector<std::array<std::uint64_t, 2>> cursor;
  for (const json& segment : segments) {
    cursor.push_back(
        {whole_number(segment.at(0), "cursor", most_steps), whole_number(segment.at(1), "cursor", most_positions)});
  }
  return cursor;
}

/// Throws json::exception for a key that is missing or of the wrong type, JobError for a number that is not whole or
/// beyond any run.
Manifest manifest_of(const json& object) {
  Manifest manifest;
  manifest.step = whole_number(object.at("step"), "step", most_steps);
  manifest.seed = count_at(object, "seed");
  manifest.data_position = whole_number(object.at("data_position"), "data_position", most_positions);
  manifest.epoch = count_at(object, "epoch");
  for (const json& number : object.at("random_state").get_ref<const json::array_t&>()) {
    manifest.random_state.push_back(whole_number(number, "random_state"));
  }
  manifest.sequence = count_at(object, "sequence");
  manifest.maestro_version = object.at("maestro_version").get<std::string>();
  // Checkpoints of earlier versions lack these.
  manifest.run = run_identity_of(object);
  manifest.data = object.value("data", manifest.data);
  manifest.settings = object.value("settings", manifest.settings);
  manifest.dtypes = object.value("dtypes", manifest.dtypes);
  manifest.cursor = cursor_of(object);
  const json ahead = object.value("ahead", json::object());
  for (const auto& [section, step] : ahead.get_ref<const json::object_t&>()) {
    manifest.ahead[section] = whole_number(step, "ahead." + section, manifest.step + most_ahead);
  }
  for (const json& file : object.at("files")) {
    manifest.files.push_back(
        {file.at("path").get<std::string>(), count_at(file, "bytes"), file.at("xxh3_128").get<std::string>()});
  }
  return manifest;
}

}  // namespace

bool is_run_id(std::string_view text) {
  return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

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
                 {"run_id", manifest.run.id},
                 {"job", manifest.run.job},
                 {"started", manifest.run.started},
                 {"data", manifest.data},
                 {"settings", manifest.settings},
                 {"dtypes", manifest.dtypes},
                 {"ahead", manifest.ahead},
                 {"files", std::move(files)}};
  if (!manifest.cursor.empty()) object["cursor"] = manifest.cursor;
  // Over the compact form without this key, which sorted keys make the same for every reader.
  object["self_xxh3_128"] = checksum_of(dumped(object));
  return dumped(object, 2) + "\n";
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
    if (!has_valid_id(manifest.run)) return corrupt(where, "run_id is not 16 hexadecimal digits");
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

std::string run_identity_text(const RunIdentity& run) {
  return dumped({{"run_id", run.id}, {"job", run.job}, {"started", run.started}}, 2) + "\n";
}

Result<RunIdentity> read_run_identity(const std::filesystem::path& file) {
  const Result<std::string> text = read_text(file);
  if (!text) return text.error();
  try {
    RunIdentity run = run_identity_of(json::parse(*text));
    if (has_valid_id(run)) return run;
  } catch (const json::exception&) {
  }
  return corrupt(file.string(), "is not the record of a run; name the checkpoint to resume from, or remove the file");
}

Result<Manifest> load_manifest(const std::filesystem::path& checkpoint) {
  const std::filesystem::path file = checkpoint / manifest_file;
  const Result<std::string> text = read_text(file);
  if (!text) return text.error();
  return parse_manifest(*text, file.string());
}

}  // namespace maestro
