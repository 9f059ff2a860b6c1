// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/manifest.hpp"

#include <algorithm>

#include "runtime/core/json_value.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/files/checksum.hpp"
#include "runtime/files/posix_file.hpp"

namespace maestro {

using nlohmann::json;

namespace {

constexpr std::int64_t format_version = 1;
// Far above any run, yet small enough that arithmetic does not overflow.
constexpr std::uint64_t most_steps = std::uint64_t{1} << 40;
constexpr std::uint64_t most_positions = std::uint64_t{1} << 60;
constexpr std::size_t most_segments = 65536;  // a run has a segment for each time that it left out samples
constexpr std::uint64_t most_ahead = 65536;   // steps; train.ahead is at most 1024

/// Returns whether a path stays inside the checkpoint: a manifest from elsewhere must not name other files.
bool stays_inside(const std::string& path) {
  const std::filesystem::path relative(path);
  return !path.empty() && relative.is_relative() &&
         std::ranges::none_of(relative, [](const auto& part) { return part == ".."; });
}

/// Returns the JSON text. Bytes that are not UTF-8, such as in command-line settings, are replaced.
std::string dumped(const json& object, int indent = -1) {
  return object.dump(indent, ' ', false, json::error_handler_t::replace);
}

bool has_valid_id(const RunIdentity& run) {
  return run.id.empty() || is_run_id(run.id);
}

Error corrupt(std::string_view where, const std::string& what) {
  return {ErrorCode::corrupt, std::string(where) + ": " + what};
}

RunIdentity run_identity_of(const JsonValue& object) {
  return {object.at("run_id").text(""), object.at("job").text(""), object.at("started").text("")};
}

std::vector<std::array<std::uint64_t, 2>> cursor_of(const JsonValue& segments) {
  std::vector<std::array<std::uint64_t, 2>> cursor;
  if (!segments) return cursor;
  if (const std::size_t count = segments.json().size(); count > most_segments) {
    segments.fail("expected at most " + std::to_string(most_segments) + " segments, got " + std::to_string(count));
  }
  for (const JsonValue& segment : segments.items()) {
    const std::vector<JsonValue> pair = segment.items();
    if (pair.size() < 2) segment.expected("a pair of numbers");
    cursor.push_back({pair[0].count(most_steps), pair[1].count(most_positions)});
  }
  return cursor;
}

Manifest manifest_of(const JsonValue& object) {
  Manifest manifest;
  manifest.step = object.at("step").count(most_steps);
  manifest.seed = object.at("seed").count();
  manifest.data_position = object.at("data_position").count(most_positions);
  manifest.epoch = object.at("epoch").count();
  for (const JsonValue& number : object.at("random_state").items()) manifest.random_state.push_back(number.count());
  manifest.sequence = object.at("sequence").count();
  manifest.maestro_version = object.at("maestro_version").text();
  // Checkpoints of earlier versions lack these keys.
  manifest.run = run_identity_of(object);
  for (auto [key, texts] :
       {std::pair("data", &manifest.data), {"settings", &manifest.settings}, {"dtypes", &manifest.dtypes}}) {
    if (const JsonValue value = object.at(key)) *texts = value.texts_by_key();
  }
  manifest.cursor = cursor_of(object.find("cursor"));
  if (const JsonValue stage = object.at("stage")) manifest.stage = stage.count(most_steps);
  if (const JsonValue ahead = object.at("ahead")) {
    for (const auto& [section, step] : ahead.members())
      manifest.ahead[section] = step.count(manifest.step + most_ahead);
  }
  for (const JsonValue& file : object.at("files").items()) {
    manifest.files.push_back({file.at("path").text(), file.at("bytes").count(), file.at("xxh3_128").text()});
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
  if (manifest.stage > 0) object["stage"] = manifest.stage;
  // Computed over the compact form without this key; keys are sorted, so that it is the same for every reader.
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
    const std::string name(where);
    Manifest manifest = manifest_of(JsonValue(object, name));
    if (!has_valid_id(manifest.run)) return corrupt(where, "run_id is not 16 hexadecimal digits");
    for (const FileRecord& file : manifest.files) {
      if (!stays_inside(file.path))
        return corrupt(where, "names a file outside the checkpoint: " + printable(file.path));
    }
    return manifest;
  } catch (const JobError& error) {
    return Error{ErrorCode::corrupt, error.what()};
  }
}

std::string run_identity_text(const RunIdentity& run) {
  return dumped({{"run_id", run.id}, {"job", run.job}, {"started", run.started}}, 2) + "\n";
}

Result<RunIdentity> read_run_identity(const std::filesystem::path& file) {
  const Result<std::string> text = read_text(file);
  if (!text) return text.error();
  Result<RunIdentity> run = read_json(*text, file.string(), ErrorCode::corrupt, run_identity_of);
  if (run && has_valid_id(*run)) return run;
  return corrupt(file.string(), "is not the record of a run; name the checkpoint to resume from, or remove the file");
}

Result<Manifest> load_manifest(const std::filesystem::path& checkpoint) {
  const std::filesystem::path file = checkpoint / manifest_file;
  const Result<std::string> text = read_text(file);
  if (!text) return text.error();
  return parse_manifest(*text, file.string());
}

}  // namespace maestro
