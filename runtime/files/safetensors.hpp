// SPDX-License-Identifier: Apache-2.0
// The safetensors format (https://github.com/huggingface/safetensors, README "Format"): eight bytes with the header's
// length (little-endian), a JSON header {name: {dtype, shape, data_offsets}} padded with spaces to eight bytes, then
// the tensors' bytes without gaps.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "runtime/core/aligned_memory.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/tensor.hpp"
#include "runtime/files/atomic_file.hpp"
#include "runtime/files/posix_file.hpp"

namespace maestro {

/// A tensor of a file, to be written or as read.
struct NamedTensor {
  std::string name;
  ConstTensor tensor;
};

using Metadata = std::map<std::string, std::string>;

/// Writes the tensors to `target` atomically (see AtomicFile), without copying them. Order in the file, as in the
/// Hugging Face library: wider dtypes first, which keeps all tensors aligned, then by name. fp32, bf16, i64, i32, u16
/// and u8 are written as F32, BF16, I64, I32, U16 and U8.
///
/// Errors (invalid_argument): two tensors with the same name, the reserved name "__metadata__", a tensor without
/// memory, a name or metadata that is not UTF-8. System errors name the path.
[[nodiscard]] Result<WrittenFile> write_safetensors(const std::filesystem::path& target,
                                                    std::vector<NamedTensor> tensors, const Metadata& metadata = {},
                                                    OperationHook hook = {});

/// Element types of weights in a file.
enum class WeightDtype : std::uint8_t { f32, bf16, f16 };
inline constexpr std::array<std::string_view, 3> weight_dtype_names{"f32", "bf16", "f16"};
[[nodiscard]] constexpr std::string_view name_of(WeightDtype dtype) {
  return weight_dtype_names[static_cast<std::size_t>(dtype)];
}
[[nodiscard]] constexpr std::uint64_t size_of(WeightDtype dtype) {
  return dtype == WeightDtype::f32 ? 4 : 2;
}

/// Writes f32 tensors as `dtype`, rounded to nearest even, a piece at a time, with the metadata that transformers
/// requires. Tensors stay in f32 if `exact` returns true for their name; tensors of other dtypes are unchanged. Errors
/// as above, and invalid_argument for a finite value beyond the range of F16, with tensor and value.
[[nodiscard]] Result<WrittenFile> write_weights(const std::filesystem::path& target, std::vector<NamedTensor> tensors,
                                                WeightDtype dtype, bool (*exact)(std::string_view tensor) = nullptr,
                                                OperationHook hook = {});

/// A file opened for reading: the complete header is checked, the data are mapped and read on access. Tensors are views
/// of this object, valid while it (or the object that it was moved to) lives. Thread-safe.
class SafetensorsFile {
 public:
  /// Opens a file. Errors (corrupt, or system errors) name the file and the faulty tensor, if any.
  [[nodiscard]] static Result<SafetensorsFile> open(const std::filesystem::path& path);

  /// Returns the tensors' names in the order of the data.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] bool contains(std::string_view name) const { return entries_.contains(name); }
  /// Returns a tensor. An F16 tensor is converted to f32 (exact), in memory that this object holds from the first call
  /// on. Of more than four dimensions the inner ones are folded: (C, 3, 2, p, p) becomes (C, 3, 2, p p). Errors:
  /// not_found with the nearest name; invalid_argument for a dtype (F64, BOOL, ...) that this program does not support.
  [[nodiscard]] Result<ConstTensor> tensor(std::string_view name) const;
  /// Returns rows [first, first + count) of a tensor, as tensor(); all dimensions but the last are folded into rows. Of
  /// an F16 tensor only these rows are converted. Errors as tensor(), and invalid_argument for rows beyond the tensor.
  [[nodiscard]] Result<ConstTensor> rows(std::string_view name, std::int64_t first, std::int64_t count) const;
  /// Returns the tensor's shape and dtype as tensor() does, but without memory and without reading data. Errors as
  /// tensor().
  [[nodiscard]] Result<ConstTensor> described(std::string_view name) const;
  /// Writes elements [first, first + to.size()) of an F16 tensor as f32, and reads only these. Errors as tensor(), and
  /// invalid_argument for another dtype or a range beyond the tensor.
  [[nodiscard]] Status widen(std::string_view name, std::int64_t first, std::span<float> to) const;
  /// Frees memory from reading the tensor: widened copies, and mapped pages, which are read again on access. Views of
  /// an F16 tensor become invalid. Unknown names are ignored.
  void release(std::string_view name) const;
  /// Returns all tensors in the order of the data, or the first error of `tensor`.
  [[nodiscard]] Result<std::vector<NamedTensor>> tensors() const;
  /// Writes a copy of the file to `target` atomically. The tensors in `changed`, f32 and of the stored shapes, are
  /// written in the stored dtypes, F32, BF16 or F16, and rounded to nearest even; all other bytes stay. Errors
  /// (invalid_argument) name the tensor: unknown, of another shape or dtype, or a value beyond the range of F16.
  [[nodiscard]] Status copy_changed(const std::filesystem::path& target,
                                    const std::map<std::string, ConstTensor, std::less<>>& changed) const;
  /// Returns the bytes of all tensors by dtype, with the dtype's name in the file ("BF16").
  [[nodiscard]] std::map<std::string, std::uint64_t> bytes_by_dtype() const;
  [[nodiscard]] const Metadata& metadata() const { return metadata_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  friend class SafetensorsHeader;
  struct Entry {
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0;  // byte offset from the start of the data
    std::uint64_t end = 0;
    AlignedMemory realigned;  // copy, if the data in an old file are not aligned for the dtype
  };
  /// Elements of F16 tensors as f32, by name, first element and number.
  struct Widened {
    std::mutex mutex;
    std::map<std::tuple<std::string, std::int64_t, std::int64_t>, AlignedMemory> memory;
  };
  SafetensorsFile() = default;
  void realign();
  [[nodiscard]] const std::byte* bytes_of(const Entry& entry) const;
  [[nodiscard]] Result<ConstTensor> described(const std::string& name, const Entry& entry) const;
  [[nodiscard]] Error unknown(std::string_view name) const;
  /// Returns an f32 copy of elements [first, first + count) of an F16 entry.
  [[nodiscard]] const std::byte* widened(const std::string& name, const Entry& entry, std::int64_t first,
                                         std::int64_t count) const;

  std::filesystem::path path_;
  MappedFile file_;
  std::span<const std::byte> data_;  // part of file_ after the header
  std::map<std::string, Entry, std::less<>> entries_;
  Metadata metadata_;
  std::unique_ptr<Widened> widened_ =
      std::make_unique<Widened>();  // separate, so that its address is stable when this is moved
};

}  // namespace maestro
