// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/made_reader.hpp"

#include "runtime/core/json_value.hpp"
#include "runtime/record/run_log.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t most_shown = 12;  // samples

std::string ids_text(const JsonValue& ids) {
  std::string text;
  for (const JsonValue& id : ids.items()) text += (text.empty() ? "" : " ") + std::to_string(id.count());
  return text;
}

}  // namespace

MadeReader::MadeReader(const fs::path& run_folder) : file_(run_folder / record_folder / rollouts_file), tail_(file_) {}

void MadeReader::take_step(const JsonValue& made) {
  const std::vector<JsonValue> counts = made.at("lengths").items();
  part_.most_tokens = made.at("most_tokens").count();
  part_.lengths.resize(counts.size());
  for (std::size_t at = 0; at < counts.size(); ++at) part_.lengths[at] += counts[at].number();
}

void MadeReader::forget_steps() {
  part_.lengths.clear();
}

Status MadeReader::refresh() {
  std::error_code failure;
  if (!fs::exists(file_, failure)) return {};
  const auto take = [&](std::string_view text) {
    const auto taken = read_json(text, file_.string(), ErrorCode::corrupt, [&](const JsonValue& line) {
      for (const JsonValue& sample : line.at("samples").items()) {
        const JsonValue prompt = sample.at("prompt"), written = sample.at("text");
        part_.samples.push_back({line.at("step").count(), sample.at("number").count(), line.at("version").count(),
                                 sample.at("seed").text(), sample.at("finish").text(), sample.at("tokens").count(),
                                 prompt ? prompt.text() : ids_text(sample.at("prompt_ids")),
                                 written ? written.text() : ids_text(sample.at("ids"))});
      }
      return true;
    });
    if (part_.samples.size() > most_shown) {
      part_.samples.erase(part_.samples.begin(), part_.samples.end() - most_shown);
    }
    return taken ? Status() : Status(taken.error());
  };
  return tail_.read(take, [&] { part_.samples.clear(); });
}

}  // namespace maestro
