// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/device_id.hpp"

#include <algorithm>
#include <charconv>

namespace maestro {

namespace {
constexpr std::string_view cpu_prefix = "cpu:";
constexpr std::string_view cuda_prefix = "cuda:";
}  // namespace

std::optional<DeviceId> parse_device(std::string_view name) {
  constexpr std::size_t most_digits = 4;
  DeviceId device{name.starts_with(cuda_prefix) ? DeviceId::Kind::cuda : DeviceId::Kind::cpu};
  const std::string_view prefix = device.is_cuda() ? cuda_prefix : cpu_prefix;
  if (!name.starts_with(prefix)) return {};
  name.remove_prefix(prefix.size());
  const bool digits = std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || name.empty() || name.size() > most_digits) return {};
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
  return device.section.empty() ? "emulated" : "emulated:" + device.section + "/" + std::to_string(device.index);
}

std::vector<std::string> texts_of(const std::vector<DeviceId>& devices) {
  std::vector<std::string> texts;
  for (const DeviceId& device : devices) texts.push_back(text_of(device));
  return texts;
}

}  // namespace maestro
