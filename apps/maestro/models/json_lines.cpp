// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/models/json_lines.hpp"

#include <filesystem>
#include <fstream>
#include <iostream>

#include "runtime/core/input_file.hpp"
#include "runtime/dataset/file_kind.hpp"

namespace maestro {

void for_json_lines(const std::string& file, const std::string& command,
                    const std::function<void(const JsonValue& value)>& sink) {
  std::ifstream opened;
  if (file != "-") {
    check_readable_kind(file).or_throw();
    if (std::filesystem::exists(file)) check_is_json(file, command + "'s lines").or_throw();
    opened.open(file);
    if (!opened) throw JobError(command + ": cannot read " + file, ErrorCode::not_found);
  }
  std::istream& in = file == "-" ? std::cin : opened;
  std::int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    const std::string where = file + ":" + std::to_string(++number);
    const nlohmann::json value = parse_json(line, where).value_or_throw();
    sink(JsonValue(value, where));
  }
}

}  // namespace maestro
