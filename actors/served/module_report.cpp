// SPDX-License-Identifier: Apache-2.0
#include "actors/served/module_report.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "actors/served/served_types.h"
#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace {

constexpr std::size_t longest_name = 200;
constexpr std::size_t most_ports = 64;
constexpr std::size_t most_parameters = 100000;
constexpr std::int64_t most_columns = std::int64_t{1} << 24;
constexpr std::int64_t most_elements = std::int64_t{1} << 40;

[[noreturn]] void refuse(const std::string& reason) {
  throw JobError("its module cannot be a section: " + reason);
}

/// Refuses an invalid or repeated name. `inner`: allowed characters besides letters and digits.
void check_name(const std::string& name, const char* kind, std::string_view inner, std::set<std::string>& seen) {
  const auto allowed = [&](unsigned char each) {
    return std::isalnum(each) != 0 || inner.find(static_cast<char>(each)) != inner.npos;
  };
  if (name.empty() || name.size() > longest_name || !std::ranges::all_of(name, allowed)) {
    refuse(std::string(kind) + " has the name \"" + printable(name) + "\"; names are letters, digits and " +
           std::string(inner));
  }
  if (!seen.insert(name).second) refuse("two " + std::string(kind) + "s are named '" + name + "'");
}

Port checked_port(const served::Port& sent, const char* kind, std::set<std::string>& seen) {
  check_name(sent.name, kind, "_", seen);
  const std::string which = std::string(kind) + " '" + sent.name + "'";
  const auto dtype = dtype_of_wire(sent.dtype);
  if (!dtype) refuse(which + " has the unknown dtype " + std::to_string(static_cast<int>(sent.dtype)));
  if (sent.columns < 1 || sent.columns > most_columns) {
    refuse(which + " has " + std::to_string(sent.columns) + " columns; expected 1 to " + std::to_string(most_columns));
  }
  if (sent.differentiable && *dtype == DType::i32) refuse(which + " is i32 and cannot be differentiable");
  Port port{sent.name, *dtype, sent.columns, sent.differentiable};
  if (sent.patches && sent.visual) refuse(which + " counts both patches and visual rows");
  port.axis = sent.patches ? Axis::patches : sent.visual ? Axis::visual : Axis::tokens;
  return port;
}

std::vector<Port> checked_ports(const std::vector<served::Port>& sent, const char* kind) {
  if (sent.size() > most_ports) refuse("it has " + std::to_string(sent.size()) + " " + kind + "s");
  std::set<std::string> seen;
  std::vector<Port> ports;
  for (const served::Port& port : sent) ports.push_back(checked_port(port, kind, seen));
  return ports;
}

Shape checked_shape(const served::Parameter& sent) {
  const std::string which = "parameter '" + sent.name + "'";
  const std::vector<std::int64_t>& sizes = sent.shape;
  if (sizes.empty() || sizes.size() > Shape::max_rank) {
    refuse(which + " has " + std::to_string(sizes.size()) + " dimensions; expected 1 to 4");
  }
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes) {
    if (size < 1 || size > most_elements / elements) refuse(which + " has a size of " + std::to_string(size));
    elements *= size;
  }
  return Shape::of(sizes);
}

}  // namespace

std::optional<DType> dtype_of_wire(int sent) {
  switch (sent) {
    case served::DataType::FP32:
      return DType::f32;
    case served::DataType::BF16:
      return DType::bf16;
    case served::DataType::I32:
      return DType::i32;
    default:
      return std::nullopt;
  }
}

int wire_of(DType dtype) {
  if (dtype == DType::f32) return served::DataType::FP32;
  return dtype == DType::bf16 ? served::DataType::BF16 : served::DataType::I32;
}

ServedModule checked_module(const served::Module& sent) {
  ServedModule module;
  module.ports = {checked_ports(sent.inputs, "input"), checked_ports(sent.outputs, "output")};
  if (module.ports.inputs.empty()) refuse("it needs an input");
  if (sent.parameters.size() > most_parameters) {
    refuse("it has " + std::to_string(sent.parameters.size()) + " parameters; expected at most " +
           std::to_string(most_parameters));
  }
  std::set<std::string> seen;
  for (const served::Parameter& parameter : sent.parameters) {
    check_name(parameter.name, "parameter", "_.-", seen);
    module.parameters.push_back({parameter.name, checked_shape(parameter), parameter.decayed});
  }
  if (!std::isfinite(sent.flops_per_row) || sent.flops_per_row < 0) {
    refuse("flops_per_row = " + number_text(sent.flops_per_row));
  }
  module.flops_per_row = sent.flops_per_row;
  module.fingerprint = printable(sent.fingerprint);
  module.description = printable(sent.description);
  return module;
}

}  // namespace maestro
