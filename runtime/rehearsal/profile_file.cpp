// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/profile_file.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "runtime/core/input_file.hpp"
#include "runtime/core/json_value.hpp"
#include "runtime/observe/output_file.hpp"

namespace maestro {

namespace {

using Json = nlohmann::ordered_json;
constexpr double us_per_ms = 1e3;
constexpr std::array dtypes{DType::f32, DType::bf16, DType::i32, DType::i64, DType::u8, DType::u16};

OperatorCall read_call(const JsonValue& object) {
  OperatorCall call;
  call.op = object.at("op").text();
  std::map<std::string, DType, std::less<>> names;
  for (const DType dtype : dtypes) names.emplace(name_of(dtype), dtype);
  call.dtype = object.at("dtype").choice(names);
  const std::vector<JsonValue> sizes = object.at("sizes").items();
  if (sizes.size() > call.sizes.size()) {
    object.at("sizes").expected("up to " + std::to_string(call.sizes.size()) + " whole numbers");
  }
  std::ranges::transform(sizes, call.sizes.begin(), [](const JsonValue& size) { return size.whole_number(INT64_MIN); });
  call.flops = object.at("flops").number(0);
  call.bytes = object.at("bytes").number(0);
  return call;
}

void read_parts(const JsonValue& times, const OperatorCall& call, MachinePrices& prices) {
  const std::vector<JsonValue> parts = times.items();
  if (parts.size() != prices.parts.size()) times.expected(std::to_string(prices.parts.size()) + " numbers");
  for (std::size_t part = 0; part < parts.size(); ++part) {
    prices.parts[part].add(call, parts[part].number(0) / us_per_ms);
  }
}

MachinePrices read(const JsonValue& root) {
  MachinePrices prices;
  root.allow_keys({"maestro", "device", "devices", "glue_alone_us", "glue_busy_us", "calls"});
  prices.build = root.at("maestro").text();
  const std::string device = root.at("device").text(prices.device);
  if (device != prices.device) prices.set_gpus(device);
  prices.devices = root.at("devices").whole_number(0);
  prices.alone.add_glue(1, root.at("glue_alone_us").number() / us_per_ms);
  prices.busy.add_glue(1, root.at("glue_busy_us").number() / us_per_ms);
  for (CallPrices& part : prices.parts) part.add_glue(1, prices.alone.glue_ms());
  for (const JsonValue& object : root.at("calls").items()) {
    object.allow_keys({"op", "dtype", "sizes", "flops", "bytes", "alone_us", "busy_us", "parts_us"});
    const OperatorCall call = read_call(object);
    if (prices.alone.has(call)) object.fail("the same call as an earlier one");
    prices.alone.add(call, object.at("alone_us").number(0) / us_per_ms);
    prices.busy.add(call, object.at("busy_us").number(0) / us_per_ms);
    if (const JsonValue parts = object.at("parts_us")) read_parts(parts, call, prices);
  }
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
  return read_json(text, name, ErrorCode::corrupt, read);
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
