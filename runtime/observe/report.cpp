// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/report.hpp"

#include <nlohmann/json.hpp>

#include "runtime/observe/output_file.hpp"

namespace maestro {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const ReportValue& value) {
  return std::visit([](const auto& held) { return Json(held); }, value.held());
}

}  // namespace

std::string row_of(const StepRow& row) {
  Json object{{"section", row.section}, {"step", row.step.value()}};
  for (const auto& [name, value] : row.metrics) object[name] = value;
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

struct Report::Members {
  Json root{{"plan", Json::object()}};
  std::vector<std::pair<std::string, RowSource>> lists;

  Json& at(std::string_view path) {
    Json* node = &root;
    while (true) {
      const auto dot = path.find('.');
      if (!node->is_object()) *node = Json::object();
      node = &(*node)[std::string(path.substr(0, dot))];
      if (dot == std::string_view::npos) return *node;
      path.remove_prefix(dot + 1);
    }
  }
};

Report::Report() : members_(std::make_unique<Members>()) {}
Report::Report(Report&&) noexcept = default;
Report& Report::operator=(Report&&) noexcept = default;
Report::~Report() = default;

void Report::set(std::string_view path, const ReportValue& value) {
  members_->at(path) = json_of(value);
}

Status Report::set_json(std::string_view path, std::string_view json) {
  auto value = Json::parse(json, nullptr, false);
  if (value.is_discarded()) {
    return Error{ErrorCode::invalid_argument, "report member " + std::string(path) + ": the given text is not JSON"};
  }
  members_->at(path) = std::move(value);
  return {};
}

void Report::add_row(std::string_view path, const std::vector<std::pair<std::string, ReportValue>>& row) {
  auto object = Json::object();
  for (const auto& [key, value] : row) object[key] = json_of(value);
  auto& list = members_->at(path);
  if (!list.is_array()) list = Json::array();
  list.push_back(std::move(object));
}

void Report::set_rows(const std::string& name, RowSource rows) {
  members_->lists.emplace_back(name, std::move(rows));
}

Status Report::write(const std::filesystem::path& path) const {
  Result<OutputFile> file = OutputFile::create(path);
  if (!file) return file.error();
  constexpr int indent = 2;
  // Paths and messages may hold any bytes; the report must still be valid JSON.
  std::string text = members_->root.dump(indent, ' ', false, Json::error_handler_t::replace);
  text.resize(text.size() - std::string_view("\n}").size());
  Status written = file->append(text);
  for (const auto& [name, rows] : members_->lists) {
    if (written) written = file->append(",\n  " + Json(name).dump() + ": [");
    std::string_view before = "\n    ";
    if (written) {
      written = rows([&](std::string_view row) {
        const Status added = file->append(std::string(before) += row);
        before = ",\n    ";
        return added;
      });
    }
    if (written) written = file->append("\n  ]");
  }
  if (written) written = file->append("\n}\n");
  return written ? file->commit() : written;
}

}  // namespace maestro
