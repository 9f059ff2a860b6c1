// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>

#include "runtime/core/json_text.hpp"
#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/files/half.hpp"
#include "runtime/files/safetensors.hpp"

namespace maestro {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr std::uint64_t largest_header = 100'000'000;  // bytes; as in the Hugging Face library

struct KnownDtype {
  std::string_view name;
  std::uint64_t bytes;
  std::optional<DType> dtype;  // none: this program can only skip the bytes
};

constexpr std::array<KnownDtype, 15> known_dtypes{{{"F32", 4, DType::f32},
                                                   {"BF16", 2, DType::bf16},
                                                   {"I64", 8, DType::i64},
                                                   {"I32", 4, DType::i32},
                                                   {"U8", 1, DType::u8},
                                                   {"F16", 2, DType::f32},  // widened when read
                                                   {"F64", 8, std::nullopt},
                                                   {"BOOL", 1, std::nullopt},
                                                   {"I8", 1, std::nullopt},
                                                   {"I16", 2, std::nullopt},
                                                   {"U16", 2, DType::u16},
                                                   {"U32", 4, std::nullopt},
                                                   {"U64", 8, std::nullopt},
                                                   {"F8_E4M3", 1, std::nullopt},
                                                   {"F8_E5M2", 1, std::nullopt}}};

const KnownDtype* known_dtype(std::string_view name) {
  const auto found = std::ranges::find(known_dtypes, name, &KnownDtype::name);
  return found == known_dtypes.end() ? nullptr : &*found;
}

std::uint64_t little_endian(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t at = 0; at < 8; ++at) value |= std::to_integer<std::uint64_t>(bytes[at]) << (8 * at);
  return value;
}

/// Returns the product of the sizes and the element's bytes; nothing if it exceeds 63 bits.
std::optional<std::uint64_t> bytes_of(const std::vector<std::int64_t>& shape, std::uint64_t element_bytes) {
  std::int64_t product = static_cast<std::int64_t>(element_bytes);
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(product, size, &product)) return std::nullopt;
  }
  return static_cast<std::uint64_t>(product);
}

Error corrupt(const fs::path& path, const std::string& what) {
  return {ErrorCode::corrupt, path.string() + " is not a sound safetensors file: " + what};
}

Error corrupt_tensor(const fs::path& path, std::string_view name, const std::string& what) {
  return corrupt(path, "tensor " + printable(name) + " " + what);
}

}  // namespace

/// Fills a SafetensorsFile from its header and checks the complete header.
class SafetensorsHeader {
 public:
  explicit SafetensorsHeader(SafetensorsFile& file) : file_(file) {}

  Status read() {
    const auto bytes = file_.file_.bytes();
    if (bytes.size() < 8) return fail("it has " + std::to_string(bytes.size()) + " bytes, fewer than any header");
    const std::uint64_t length = little_endian(bytes);
    if (length > largest_header || length > bytes.size() - 8) {
      return fail("it claims a header of " + std::to_string(length) + " bytes but has " + std::to_string(bytes.size()) +
                  " in all; it is truncated or of another format");
    }
    file_.data_ = bytes.subspan(8 + static_cast<std::size_t>(length));
    const auto text = bytes.subspan(8, static_cast<std::size_t>(length));
    return parse({reinterpret_cast<const char*>(text.data()), text.size()});
  }

 private:
  Status parse(std::string_view text) {
    // Each tensor is added when it is parsed: a document for a header with a million tensors would take gigabytes.
    const auto add = [&](const std::string& name, const json& value) {
      (name == "__metadata__" ? add_metadata(value) : add_tensor(name, value)).or_throw();
    };
    const Status read = parse_json_members(text, corrupt(file_.path_, "its header").message, add);
    return read ? check_coverage() : read;
  }

  Status add_metadata(const json& value) {
    if (!value.is_object()) return fail("__metadata__ is not an object of strings");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string())
        return fail("__metadata__ has a " + std::string(text.type_name()) + " under " + printable(key));
      file_.metadata_.emplace(key, text.get<std::string>());
    }
    return {};
  }

  Status add_tensor(const std::string& name, const json& value) {
    const auto dtype = value.find("dtype"), shape = value.find("shape"), offsets = value.find("data_offsets");
    if (!value.is_object() || dtype == value.end() || shape == value.end() || offsets == value.end()) {
      return fail(name, "lacks dtype, shape or data_offsets");
    }
    const KnownDtype* known = dtype->is_string() ? known_dtype(dtype->get_ref<const std::string&>()) : nullptr;
    if (known == nullptr) return fail(name, "has the unknown dtype " + shown(*dtype));
    SafetensorsFile::Entry entry;
    entry.dtype = known->name;
    const auto is_size = [](const json& size) {
      return size.is_number_unsigned() && size.get<std::uint64_t>() <= std::uint64_t{INT64_MAX};
    };
    if (!shape->is_array() || !std::ranges::all_of(*shape, is_size))
      return fail(name, "has a shape that is not a list of sizes");
    for (const json& size : *shape) entry.shape.push_back(size.get<std::int64_t>());
    if (!offsets->is_array() || offsets->size() != 2 || !std::ranges::all_of(*offsets, is_size)) {
      return fail(name, "has data_offsets that are not a pair of positions");
    }
    entry.begin = (*offsets)[0].get<std::uint64_t>();
    entry.end = (*offsets)[1].get<std::uint64_t>();
    if (const Status checked = check_extent(name, entry, known->bytes); !checked) return checked;
    file_.entries_.emplace(name, std::move(entry));
    return {};
  }

  Status check_extent(const std::string& name, const SafetensorsFile::Entry& entry, std::uint64_t element_bytes) {
    if (entry.begin > entry.end || entry.end > file_.data_.size()) {
      return fail(name, "lies at bytes " + std::to_string(entry.begin) + " to " + std::to_string(entry.end) + " of " +
                            std::to_string(file_.data_.size()) + " of data; the file is truncated or altered");
    }
    const auto bytes = bytes_of(entry.shape, element_bytes);
    if (!bytes) return fail(name, "has a shape too large for any machine");
    if (*bytes != entry.end - entry.begin) {
      return fail(name, "takes " + std::to_string(entry.end - entry.begin) + " bytes, but its shape and dtype need " +
                            std::to_string(*bytes));
    }
    return {};
  }

  /// Checks that the tensors follow each other without gap or overlap and end with the file, as the format requires.
  Status check_coverage() {
    using Named = std::pair<const std::string, SafetensorsFile::Entry>;
    std::vector<const Named*> order;
    for (const Named& named : file_.entries_) order.push_back(&named);
    std::ranges::sort(order, {}, [](const Named* named) { return std::pair(named->second.begin, named->second.end); });
    std::uint64_t end = 0;
    for (const Named* named : order) {
      if (named->second.begin < end) return fail(named->first, "overlaps the tensor before it");
      if (named->second.begin > end) return fail(named->first, "leaves a gap before it");
      end = named->second.end;
    }
    if (end == file_.data_.size()) return {};
    return fail("it has " + std::to_string(file_.data_.size() - end) + " bytes outside of all tensors");
  }

  Error fail(const std::string& what) const { return corrupt(file_.path_, what); }
  Error fail(std::string_view name, const std::string& what) const { return corrupt_tensor(file_.path_, name, what); }

  SafetensorsFile& file_;
};

Result<SafetensorsFile> SafetensorsFile::open(const fs::path& path) {
  Result<MappedFile> mapped = MappedFile::open(path);
  if (!mapped) return mapped.error();
  SafetensorsFile file;
  file.path_ = path;
  file.file_ = *std::move(mapped);
  if (const Status read = SafetensorsHeader(file).read(); !read) return read.error();
  file.realign();
  return file;
}

void SafetensorsFile::realign() {
  for (auto& [name, entry] : entries_) {
    const std::byte* at = data_.data() + entry.begin;
    const std::uint64_t bytes = entry.end - entry.begin;
    if (bytes == 0 || reinterpret_cast<std::uintptr_t>(at) % known_dtype(entry.dtype)->bytes == 0) continue;
    entry.realigned = AlignedMemory(static_cast<std::size_t>(bytes));
    std::memcpy(entry.realigned.data(), at, static_cast<std::size_t>(bytes));
  }
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  std::ranges::stable_sort(names, {}, [&](const std::string& name) { return entries_.find(name)->second.begin; });
  return names;
}

Error SafetensorsFile::unknown(std::string_view name) const {
  const auto nearest = nearest_name(name, names());
  const std::string known = nearest            ? "the nearest is " + printable(*nearest)
                            : entries_.empty() ? "it has none at all"
                                               : "it has for example " + printable(entries_.begin()->first);
  return {ErrorCode::not_found, path_.string() + " has no tensor " + printable(name) + "; " + known};
}

Result<ConstTensor> SafetensorsFile::described(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return unknown(name);
  return described(found->first, found->second);
}

Result<ConstTensor> SafetensorsFile::described(const std::string& name, const Entry& entry) const {
  const KnownDtype* known = known_dtype(entry.dtype);
  const std::string where = path_.string() + ": tensor " + printable(name);
  if (!known->dtype) {
    return Error{ErrorCode::invalid_argument,
                 where + " is " + entry.dtype + "; weights can be F32, BF16 or F16: convert the file"};
  }
  std::vector<std::int64_t> sizes = entry.shape;
  while (sizes.size() > static_cast<std::size_t>(Shape::max_rank)) {
    const std::int64_t innermost = sizes.back();
    sizes.pop_back();
    sizes.back() *= innermost;
  }
  return ConstTensor(nullptr, *known->dtype, Shape::of(sizes));
}

Result<ConstTensor> SafetensorsFile::tensor(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return unknown(name);
  const auto& [stored_name, entry] = *found;
  const Result<ConstTensor> form = described(stored_name, entry);
  if (!form) return form.error();
  const std::byte* const data =
      entry.dtype == "F16" ? widened(stored_name, entry, 0, form->elements()) : bytes_of(entry);
  return ConstTensor(data, form->dtype(), form->shape());
}

Result<ConstTensor> SafetensorsFile::rows(std::string_view name, std::int64_t first, std::int64_t count) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return unknown(name);
  const auto& [stored_name, entry] = *found;
  const Result<ConstTensor> form = described(stored_name, entry);
  if (!form) return form.error();
  const std::int64_t columns = form->columns(), rows = columns == 0 ? 0 : form->elements() / columns;
  if (first < 0 || count < 0 || count > rows || first > rows - count) {
    return Error{ErrorCode::invalid_argument, path_.string() + ": tensor " + printable(name) + " has " +
                                                  std::to_string(rows) + " rows, not " + std::to_string(count) +
                                                  " from " + std::to_string(first)};
  }
  const std::byte* const data =
      entry.dtype == "F16" ? widened(stored_name, entry, first * columns, count * columns)
                           : bytes_of(entry) + static_cast<std::size_t>(first * columns) * size_of(form->dtype());
  return ConstTensor(data, form->dtype(), Shape{count, columns});
}

Status SafetensorsFile::widen(std::string_view name, std::int64_t first, std::span<float> to) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return unknown(name);
  const Entry& entry = found->second;
  const std::string where = path_.string() + ": tensor " + printable(name);
  if (entry.dtype != "F16") return Error{ErrorCode::invalid_argument, where + " is " + entry.dtype + ", expected F16"};
  const auto elements = static_cast<std::int64_t>((entry.end - entry.begin) / sizeof(std::uint16_t));
  const auto count = static_cast<std::int64_t>(to.size());
  if (first < 0 || count > elements || first > elements - count) {
    return Error{ErrorCode::invalid_argument, where + " has " + std::to_string(elements) + " elements, not " +
                                                  std::to_string(count) + " from " + std::to_string(first)};
  }
  const auto* from = reinterpret_cast<const std::uint16_t*>(bytes_of(entry)) + first;
  std::transform(from, from + count, to.begin(), value_of_half);
  return {};
}

void SafetensorsFile::release(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return;
  const std::scoped_lock lock(widened_->mutex);
  std::erase_if(widened_->memory, [&](const auto& held) { return std::get<0>(held.first) == name; });
  const Entry& entry = found->second;
  file_.release(
      data_.subspan(static_cast<std::size_t>(entry.begin), static_cast<std::size_t>(entry.end - entry.begin)));
}

std::map<std::string, std::uint64_t> SafetensorsFile::bytes_by_dtype() const {
  std::map<std::string, std::uint64_t> bytes;
  for (const auto& [name, entry] : entries_) bytes[entry.dtype] += entry.end - entry.begin;
  return bytes;
}

const std::byte* SafetensorsFile::bytes_of(const Entry& entry) const {
  return entry.realigned.data() != nullptr ? entry.realigned.data() : data_.data() + entry.begin;
}

const std::byte* SafetensorsFile::widened(const std::string& name, const Entry& entry, std::int64_t first,
                                          std::int64_t count) const {
  const std::scoped_lock lock(widened_->mutex);
  const auto [held, added] = widened_->memory.try_emplace({name, first, count});
  if (!added) return held->second.data();
  held->second = AlignedMemory(static_cast<std::size_t>(count) * sizeof(float));
  const auto* from = reinterpret_cast<const std::uint16_t*>(bytes_of(entry)) + first;
  std::transform(from, from + count, reinterpret_cast<float*>(held->second.data()), value_of_half);
  return held->second.data();
}

Result<std::vector<NamedTensor>> SafetensorsFile::tensors() const {
  std::vector<NamedTensor> all;
  for (std::string& name : names()) {
    Result<ConstTensor> found = tensor(name);
    if (!found) return found.error();
    all.push_back({std::move(name), *found});
  }
  return all;
}

}  // namespace maestro
