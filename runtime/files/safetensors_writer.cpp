// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/files/half.hpp"
#include "runtime/files/safetensors.hpp"

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
    case DType::u16:
      return "U16";
  }
  return "";
}

/// Returns the rank of a tensor in the Hugging Face library's order: by its dtype in the file, widest first.
int rank_of(DType dtype, WeightDtype weights) {
  constexpr int of_halves = 3;
  if (dtype == DType::f32 && weights != WeightDtype::f32) return of_halves;
  switch (dtype) {
    case DType::i64:
      return 0;
    case DType::f32:
      return 1;
    case DType::i32:
      return 2;
    case DType::bf16:
      return of_halves;
    case DType::u16:
      return 4;
    case DType::u8:
      return 5;
  }
  return 6;
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

/// A file to be written, with its tensors in the order of the file.
struct Content {
  std::vector<NamedTensor> tensors;
  Metadata metadata;
  WeightDtype weights = WeightDtype::f32;            // dtype of the f32 tensors in the file
  bool (*exact)(std::string_view tensor) = nullptr;  // names tensors that stay in f32

  [[nodiscard]] WeightDtype weights_in(const NamedTensor& named) const {
    return exact != nullptr && exact(named.name) ? WeightDtype::f32 : weights;
  }
  [[nodiscard]] std::string_view dtype_of(const NamedTensor& named) const {
    constexpr std::array<std::string_view, 3> names{"F32", "BF16", "F16"};
    const DType own = named.tensor.dtype();
    return own == DType::f32 ? names[static_cast<std::size_t>(weights_in(named))] : safetensors_name(own);
  }
  [[nodiscard]] std::uint64_t bytes_of(const NamedTensor& named) const {
    if (named.tensor.dtype() != DType::f32) return named.tensor.bytes();
    return static_cast<std::uint64_t>(named.tensor.elements()) * size_of(weights_in(named));
  }
};

/// Returns the header. Throws nlohmann::json::exception if a name is not UTF-8.
std::string header_of(const Content& content) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!content.metadata.empty()) header["__metadata__"] = content.metadata;
  std::uint64_t begin = 0;
  for (const NamedTensor& named : content.tensors) {
    const ConstTensor& tensor = named.tensor;
    auto sizes = nlohmann::ordered_json::array();
    for (int axis = 0; axis < tensor.shape().rank(); ++axis) sizes.push_back(tensor.shape()[axis]);
    const std::uint64_t end = begin + content.bytes_of(named);
    nlohmann::ordered_json entry = nlohmann::ordered_json::object();
    entry["dtype"] = content.dtype_of(named);
    entry["shape"] = std::move(sizes);
    entry["data_offsets"] = {begin, end};
    header.push_back({named.name, std::move(entry)});  // operator[] would search: quadratic in an ordered object
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

/// Writes an f32 tensor as 16-bit values, a piece at a time.
Status write_rounded(AtomicFile& file, const NamedTensor& named, WeightDtype dtype) {
  constexpr std::size_t piece = std::size_t{1} << 16;
  std::vector<std::uint16_t> rounded;
  for (auto rest = named.tensor.span<float>(); !rest.empty(); rest = rest.subspan(rounded.size())) {
    rounded.resize(std::min(rest.size(), piece));
    const auto head = rest.first(rounded.size());
    if (dtype == WeightDtype::bf16) {
      std::ranges::transform(head, rounded.begin(), [](float value) { return bfloat16(value).bits; });
    } else {
      std::ranges::transform(head, rounded.begin(), half_of);
    }
    for (std::size_t at = 0; dtype == WeightDtype::f16 && at < head.size(); ++at) {
      if ((rounded[at] & 0x7fffU) != 0x7c00U || std::isinf(head[at])) continue;
      return Error{ErrorCode::invalid_argument,
                   "the value " + std::to_string(head[at]) +
                       " is beyond the range of f16, 65504; bf16 and f32 can represent it"};
    }
    if (const Status written = file.write(std::as_bytes(std::span(rounded))); !written) return written;
  }
  return {};
}

Result<WrittenFile> write_content(const std::filesystem::path& target, Content content, OperationHook hook) {
  std::ranges::sort(content.tensors, [&](const NamedTensor& a, const NamedTensor& b) {
    const int left = rank_of(a.tensor.dtype(), content.weights_in(a));
    const int right = rank_of(b.tensor.dtype(), content.weights_in(b));
    return left != right ? left < right : a.name < b.name;
  });
  if (const Status checked = check(content.tensors, target); !checked) return checked.error();
  std::string header;
  try {
    header = header_of(content);
  } catch (const nlohmann::json::exception&) {
    return Error{ErrorCode::invalid_argument,
                 "cannot write " + target.string() + ": a tensor name or the metadata is not UTF-8"};
  }
  Result<AtomicFile> file = AtomicFile::create(target, std::move(hook));
  if (!file) return file.error();
  if (const Status written = file->write(little_endian(header.size())); !written) return written.error();
  if (const Status written = file->write(header); !written) return written.error();
  for (const NamedTensor& named : content.tensors) {
    const bool as_it_is = content.bytes_of(named) == named.tensor.bytes();
    const Status written = as_it_is ? file->write({named.tensor.raw(), named.tensor.bytes()})
                                    : write_rounded(*file, named, content.weights);
    if (!written) return Error{written.error().code, written.error().message + " (at tensor " + named.name + ")"};
  }
  return file->commit();
}

}  // namespace

Result<WrittenFile> write_safetensors(const std::filesystem::path& target, std::vector<NamedTensor> tensors,
                                      const Metadata& metadata, OperationHook hook) {
  return write_content(target, {std::move(tensors), metadata}, std::move(hook));
}

Result<WrittenFile> write_weights(const std::filesystem::path& target, std::vector<NamedTensor> tensors,
                                  WeightDtype dtype, bool (*exact)(std::string_view tensor), OperationHook hook) {
  return write_content(target, {std::move(tensors), {{"format", "pt"}}, dtype, exact}, std::move(hook));
}

Status SafetensorsFile::copy_changed(const std::filesystem::path& target,
                                     const std::map<std::string, ConstTensor, std::less<>>& changed) const {
  constexpr std::array<std::string_view, 3> dtypes{"F32", "BF16", "F16"};
  for (const auto& [name, values] : changed) {
    const auto entry = entries_.find(name);
    if (entry == entries_.end()) return unknown(name);
    const Result<ConstTensor> stored = described(name);
    if (!stored) return stored.error();
    if (std::ranges::find(dtypes, entry->second.dtype) != dtypes.end() && stored->shape() == values.shape()) continue;
    return Error{ErrorCode::invalid_argument, path_.string() + ": tensor '" + name + "' is " + entry->second.dtype +
                                                  " " + stored->shape().to_string() + ", its new values are F32 " +
                                                  values.shape().to_string()};
  }
  Result<AtomicFile> file = AtomicFile::create(target);
  if (!file) return file.error();
  const std::span<const std::byte> bytes = file_.bytes();
  if (const Status head = file->write(bytes.first(bytes.size() - data_.size())); !head) return head;
  for (const std::string& name : names()) {  // in the order of the data, which have no gaps
    const Entry& entry = entries_.find(name)->second;
    const auto found = changed.find(name);
    const auto dtype = static_cast<WeightDtype>(std::ranges::find(dtypes, entry.dtype) - dtypes.begin());
    Status written;
    if (found == changed.end()) {
      written = file->write(data_.subspan(entry.begin, entry.end - entry.begin));
    } else if (dtype == WeightDtype::f32) {
      written = file->write(std::as_bytes(found->second.span<float>()));
    } else {
      written = write_rounded(*file, {name, found->second}, dtype);
    }
    if (!written)
      return Error{written.error().code, target.string() + ": tensor '" + name + "': " + written.error().message};
  }
  const Result<WrittenFile> committed = file->commit();
  return committed ? Status() : Status(committed.error());
}

}  // namespace maestro
