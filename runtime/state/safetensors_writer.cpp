// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "runtime/state/safetensors.hpp"

namespace maestro {

namespace {

std::string_view safetensors_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "F32";
    case DType::bf16:
      return "BF16";
    case DType::i32:
      return "I32";
    case DType::i64:
      return "I64";
    case DType::u8:
      return "U8";
  }
  return "";
}

/// Position of a dtype in the Hugging Face library's order, widest first.
int rank_of(DType dtype) {
  switch (dtype) {
    case DType::i64:
      return 0;
    case DType::f32:
      return 1;
    case DType::i32:
      return 2;
    case DType::bf16:
      return 3;
    case DType::u8:
      return 4;
  }
  return 5;
}

Status check(const std::vector<NamedTensor>& sorted, const std::filesystem::path& target) {
  const std::string where = "cannot write " + target.string() + ": ";
  std::vector<std::string_view> names;
  for (const auto& [name, tensor] : sorted) {
    names.push_back(name);
    if (name == "__metadata__") {
      return Error{ErrorCode::invalid_argument, where + "a tensor cannot be called __metadata__"};
    }
    if (!tensor.defined() && tensor.elements() > 0) {
      return Error{ErrorCode::invalid_argument, where + "tensor " + name + " has no memory"};
    }
  }
  std::ranges::sort(names);
  if (const auto twice = std::ranges::adjacent_find(names); twice != names.end()) {
    return Error{ErrorCode::invalid_argument, where + "two tensors are called " + std::string(*twice)};
  }
  return {};
}

/// Throws nlohmann::json::exception when a name is no UTF-8.
std::string header_of(const std::vector<NamedTensor>& sorted, const Metadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t begin = 0;
  for (const auto& [name, tensor] : sorted) {
    auto sizes = nlohmann::ordered_json::array();
    for (int axis = 0; axis < tensor.shape().rank(); ++axis) sizes.push_back(tensor.shape()[axis]);
    const std::uint64_t end = begin + tensor.bytes();
    nlohmann::ordered_json entry = nlohmann::ordered_json::object();
    entry["dtype"] = safetensors_name(tensor.dtype());
    entry["shape"] = std::move(sizes);
    entry["data_offsets"] = {begin, end};
    header.push_back({name, std::move(entry)});  // not operator[], which searches: quadratic in an ordered object
    begin = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

std::array<std::byte, 8> little_endian(std::uint64_t value) {
  std::array<std::byte, 8> bytes{};
  for (std::size_t at = 0; at < 8; ++at) bytes[at] = static_cast<std::byte>(value >> (8 * at));
  return bytes;
}

}  // namespace

Result<WrittenFile> write_safetensors(const std::filesystem::path& target, std::vector<NamedTensor> tensors,
                                      const Metadata& metadata, OperationHook hook) {
  std::ranges::sort(tensors, [](const NamedTensor& a, const NamedTensor& b) {
    const int left = rank_of(a.tensor.dtype()), right = rank_of(b.tensor.dtype());
    return left != right ? left < right : a.name < b.name;
  });
  if (const Status checked = check(tensors, target); !checked) return checked.error();
  std::string header;
  try {
    header = header_of(tensors, metadata);
  } catch (const nlohmann::json::exception&) {
    return Error{ErrorCode::invalid_argument,
                 "cannot write " + target.string() + ": a tensor name or the metadata is no UTF-8"};
  }
  Result<AtomicFile> file = AtomicFile::create(target, std::move(hook));
  if (!file) return file.error();
  if (const Status written = file->write(little_endian(header.size())); !written) return written.error();
  if (const Status written = file->write(header); !written) return written.error();
  for (const auto& [name, tensor] : tensors) {
    const Status written = file->write(std::span<const std::byte>(tensor.raw(), tensor.bytes()));
    if (!written) return Error{written.error().code, written.error().message + " (at tensor " + name + ")"};
  }
  return file->commit();
}

}  // namespace maestro
