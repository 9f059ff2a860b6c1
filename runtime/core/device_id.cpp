// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/device_id.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>

namespace maestro {

namespace {
constexpr std::string_view cpu_prefix = "cpu:";
constexpr std::string_view cuda_prefix = "cuda:";
constexpr std::string_view emulated_prefix = "emulated:";
}  // namespace

std::optional<DeviceId> parse_device(std::string_view name) {
  using Kind = DeviceId::Kind;
  struct Form {
    std::string_view prefix;
    Kind kind;
    std::size_t most_digits;
  };
  constexpr Form forms[] = {
      {cpu_prefix, Kind::cpu, 4}, {cuda_prefix, Kind::cuda, 4}, {emulated_prefix, Kind::emulated, 9}};
  const Form* form = std::ranges::find_if(forms, [&](const Form& each) { return name.starts_with(each.prefix); });
  if (form == std::end(forms)) return {};
  name.remove_prefix(form->prefix.size());
  const bool digits = std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || name.empty() || name.size() > form->most_digits) return {};
  DeviceId device{form->kind};
  device.numbered = form->kind == Kind::emulated;
  std::from_chars(name.data(), name.data() + name.size(), device.index);
  return device;
}

std::string text_of(const DeviceId& device) {
  switch (device.kind) {
    case DeviceId::Kind::host:
      return "host";
    case DeviceId::Kind::cpu:
      return std::string(cpu_prefix) + std::to_string(device.index);
    case DeviceId::Kind::cuda:
      return std::string(cuda_prefix) + std::to_string(device.index);
    case DeviceId::Kind::emulated:
      break;
  }
  const std::string prefix(emulated_prefix);
  if (device.numbered) return prefix + std::to_string(device.index);
  return device.section.empty() ? "emulated" : prefix + device.section + "/" + std::to_string(device.index);
}

std::vector<std::string> texts_of(const std::vector<DeviceId>& devices) {
  std::vector<std::string> texts;
  for (const DeviceId& device : devices) texts.push_back(text_of(device));
  return texts;
}

}  // namespace maestro
