// SPDX-License-Identifier: Apache-2.0
#include "runtime/estimate/profile_file.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "runtime/core/input_file.hpp"
#include "runtime/core/json_text.hpp"
#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/observe/output_file.hpp"

namespace maestro {

namespace {

using Json = nlohmann::ordered_json;
constexpr double us_per_ms = 1e3;
constexpr std::array dtypes{DType::f32, DType::bf16, DType::i32, DType::i64, DType::u8, DType::u16};

/// Returns whether it is an integer of 64 bits, as it is written.
bool is_integer(const nlohmann::json& value) {
  constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
  return value.is_number_integer() && (!value.is_number_unsigned() || value.get<std::uint64_t>() <= most);
}

/// Reads an object's keys, each of them once and none besides.
class StrictObject {
 public:
  StrictObject(const nlohmann::json& object, std::string path, const std::string& file)
      : object_(object), path_(std::move(path)), file_(file) {
    if (!object.is_object()) fail("", "expected an object, but it is " + shown(object));
  }

  const nlohmann::json& at(const std::string& key) {
    read_.insert(key);
    const auto found = object_.find(key);
    if (found == object_.end()) fail(key, "missing");
    return *found;
  }
  std::string text(const std::string& key) {
    const nlohmann::json& value = at(key);
    if (!value.is_string()) fail(key, "expected text, but it is " + shown(value));
    return value.get<std::string>();
  }
  [[nodiscard]] bool has(const std::string& key) const { return object_.contains(key); }
  double signed_number(const std::string& key) {
    const nlohmann::json& value = at(key);
    if (!value.is_number()) fail(key, "expected a number, but it is " + shown(value));
    return value.get<double>();
  }
  double number(const std::string& key) {
    const nlohmann::json& value = at(key);
    if (!value.is_number() || !(value.get<double>() >= 0)) {
      fail(key, "expected a number of 0 or more, but it is " + shown(value));
    }
    return value.get<double>();
  }
  std::int64_t whole_number(const std::string& key) {
    const nlohmann::json& value = at(key);
    if (!is_integer(value) || value.get<std::int64_t>() < 0)
      fail(key, "expected a whole number of 0 or more, but it is " + shown(value));
    return value.get<std::int64_t>();
  }
  void finish() const {
    const std::vector<std::string> known(read_.begin(), read_.end());
    for (const auto& [key, value] : object_.items()) {
      if (read_.contains(key)) continue;
      const auto nearest = nearest_name(key, known);
      fail(key, "unknown key" + (nearest ? "; did you mean " + *nearest + "?" : std::string()));
    }
  }
  [[noreturn]] void fail(const std::string& key, const std::string& what) const {
    const std::string path = key.empty() ? path_ : join_json_path(path_, key);
    throw JobError(file_ + ": " + (path.empty() ? "" : path + ": ") + what, ErrorCode::corrupt);
  }

 private:
  const nlohmann::json& object_;
  std::string path_;
  const std::string& file_;
  std::set<std::string> read_;
};

OperatorCall read_call(StrictObject& object) {
  OperatorCall call;
  call.op = object.text("op");
  const std::string dtype = object.text("dtype");
  const auto* const found = std::ranges::find(dtypes, dtype, [](DType each) { return name_of(each); });
  if (found == dtypes.end()) object.fail("dtype", "no element type: " + printable(dtype));
  call.dtype = *found;
  const nlohmann::json& sizes = object.at("sizes");
  if (!sizes.is_array() || sizes.size() > call.sizes.size() || !std::ranges::all_of(sizes, is_integer)) {
    object.fail("sizes", "expected up to " + std::to_string(call.sizes.size()) + " integers of 64 bits, but it is " +
                             shown(sizes));
  }
  std::ranges::transform(sizes, call.sizes.begin(),
                         [](const nlohmann::json& size) { return size.get<std::int64_t>(); });
  call.flops = object.number("flops");
  call.bytes = object.number("bytes");
  return call;
}

void read_parts(StrictObject& object, const OperatorCall& call, MachinePrices& prices) {
  const nlohmann::json& parts = object.at("parts_us");
  const auto time = [](const nlohmann::json& part) { return part.is_number() && part.get<double>() >= 0; };
  if (!parts.is_array() || parts.size() != prices.parts.size() || !std::ranges::all_of(parts, time)) {
    object.fail("parts_us",
                "expected " + std::to_string(prices.parts.size()) + " numbers of 0 or more, but it is " + shown(parts));
  }
  for (std::size_t part = 0; part < parts.size(); ++part) {
    prices.parts[part].add(call, parts[part].get<double>() / us_per_ms);
  }
}

MachinePrices read(const nlohmann::json& document, const std::string& file) {
  MachinePrices prices;
  StrictObject root(document, "", file);
  prices.build = root.text("maestro");
  if (root.has("device") && root.text("device") != prices.device) prices.set_gpus(root.text("device"));
  prices.devices = root.whole_number("devices");
  prices.alone.add_glue(1, root.signed_number("glue_alone_us") / us_per_ms);
  prices.busy.add_glue(1, root.signed_number("glue_busy_us") / us_per_ms);
  for (CallPrices& part : prices.parts) part.add_glue(1, prices.alone.glue_ms());
  const nlohmann::json& calls = root.at("calls");
  if (!calls.is_array()) root.fail("calls", "expected a list, but it is " + shown(calls));
  for (std::size_t at = 0; at < calls.size(); ++at) {
    StrictObject object(calls[at], "calls[" + std::to_string(at) + "]", file);
    const OperatorCall call = read_call(object);
    if (prices.alone.has(call)) object.fail("", "the same call as an earlier one");
    prices.alone.add(call, object.number("alone_us") / us_per_ms);
    prices.busy.add(call, object.number("busy_us") / us_per_ms);
    if (object.has("parts_us")) read_parts(object, call, prices);
    object.finish();
  }
  root.finish();
  return prices;
}

}  // namespace

void MachinePrices::set_gpus(std::string model) {
  device = std::move(model);
  alone.set_own_memory();
  busy.set_own_memory();
  for (CallPrices& part : parts) part.set_own_memory();
}

Result<MachinePrices> parse_profile(std::string_view text, const std::string& name) {
  const Result<nlohmann::json> document = parse_json(text, name);
  if (!document) return document.error();
  try {
    return read(*document, name);
  } catch (const JobError& problem) {
    return Error{problem.code(), problem.what()};
  }
}

Result<MachinePrices> read_profile(const std::filesystem::path& path) {
  const Result<std::string> text = read_text(path);
  return text ? parse_profile(*text, path.string()) : text.error();
}

std::string profile_text(const MachinePrices& prices) {
  Json calls = Json::array();
  PriceSources unused;
  for (const auto& [call, alone] : prices.alone.measured()) {
    std::vector<std::int64_t> sizes(call.sizes.begin(), call.sizes.end());
    while (!sizes.empty() && sizes.back() == 0) sizes.pop_back();
    calls.push_back({{"op", call.op},
                     {"dtype", name_of(call.dtype)},
                     {"sizes", sizes},
                     {"flops", call.flops},
                     {"bytes", call.bytes},
                     {"alone_us", alone * us_per_ms},
                     {"busy_us", prices.busy.ms(call, unused) * us_per_ms}});
    if (prices.parts.front().empty()) continue;
    for (const CallPrices& part : prices.parts) calls.back()["parts_us"].push_back(part.ms(call, unused) * us_per_ms);
  }
  const Json document{{"maestro", prices.build},
                      {"device", prices.device},
                      {"devices", prices.devices},
                      {"glue_alone_us", prices.alone.glue_ms() * us_per_ms},
                      {"glue_busy_us", prices.busy.glue_ms() * us_per_ms},
                      {"calls", calls}};
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status write_profile(const MachinePrices& prices, const std::filesystem::path& path) {
  return write_output(path, profile_text(prices));
}

}  // namespace maestro
