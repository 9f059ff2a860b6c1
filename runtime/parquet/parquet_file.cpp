// SPDX-License-Identifier: Apache-2.0
#include "runtime/parquet/parquet_file.hpp"

#include <new>
#include <system_error>
#include <utility>

#include "runtime/core/printable.hpp"
#include "runtime/parquet/byte_reader.hpp"

namespace maestro {

using parquet::damaged;
using parquet::unsupported;

namespace {

/// Calls `read` and returns its result, or its exception as an Error that names file and place.
template <class Value, class Read, class Place>
Result<Value> guarded(const std::filesystem::path& path, const Read& read, const Place& place) {
  const auto failed = [&](ErrorCode code, const std::string& reason) {
    return Error{code, "cannot read " + printable(path.string()) + ": " + place() + reason};
  };
  try {
    return read();
  } catch (const JobError& error) {
    return failed(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return failed(ErrorCode::unavailable, "not enough memory");
  }
}

}  // namespace

void ParquetFile::read_schema(bool images) {
  constexpr std::uint64_t magic_bytes = 4, tail_bytes = 8;  // the footer's size and the magic
  std::error_code failure;
  const std::uint64_t size = std::filesystem::file_size(file_.path, failure);
  if (failure) damaged(failure.message());
  if (size < magic_bytes + tail_bytes) damaged("a file of " + std::to_string(size) + " bytes is not Parquet");
  const std::string tail = read_at(file_.descriptor, file_.path, size - tail_bytes, tail_bytes).value_or_throw();
  if (tail.ends_with("PARE")) unsupported("the file is encrypted");
  if (!tail.ends_with("PAR1")) damaged("it does not end as Parquet does (PAR1); perhaps it is incomplete");
  const std::uint64_t bytes = parquet::ByteReader(tail).u32();
  if (bytes > size - magic_bytes - tail_bytes || bytes > parquet::longest_footer) {
    damaged("its footer has " + std::to_string(bytes) + " bytes, more than the file or 256 MiB");
  }
  const std::uint64_t pages_end = size - tail_bytes - bytes;
  const std::string footer = read_at(file_.descriptor, file_.path, pages_end, bytes).value_or_throw();
  footer_ = parquet::read_footer(footer, pages_end);
  tree_ = parquet::make_schema_tree(footer_.schema, images);
  rows_ = std::make_unique<parquet::RowAssembler>(tree_);
}

Result<std::unique_ptr<ParquetFile>> ParquetFile::open(const std::filesystem::path& path, bool images) {
  std::unique_ptr<ParquetFile> made(new ParquetFile);
  made->file_.path = path;
  Result<FileDescriptor> descriptor = open_for_reading(path);
  if (!descriptor) return descriptor.error();
  made->file_.descriptor = *std::move(descriptor);
  const Result<bool> opened = guarded<bool>(
      path, [&] { return made->read_schema(images), true; }, [] { return ""; });
  if (!opened) return opened.error();
  return made;
}

bool ParquetFile::advance() {
  while (left_in_group_ == 0) {
    if (begun_groups_ > 0) rows_->end();
    if (begun_groups_ == footer_.row_groups.size()) return false;
    const parquet::RowGroup& group = footer_.row_groups[begun_groups_++];
    left_in_group_ = group.rows;
    rows_->begin(file_, group);
  }
  rows_->next_row(json_, blobs_);
  --left_in_group_;
  ++passed_rows_;
  return true;
}

std::string ParquetFile::place() const {
  if (begun_groups_ == 0) return "";
  const std::string column = rows_->place();
  return "row group " + std::to_string(begun_groups_ - 1) + ", row " + std::to_string(passed_rows_) +
         (column.empty() ? "" : ", " + column) + ": ";
}

Result<bool> ParquetFile::next() {
  return guarded<bool>(
      file_.path, [&] { return advance(); }, [&] { return place(); });
}

ParquetRow ParquetFile::row() const {
  return {json_, static_cast<std::int64_t>(begun_groups_) - 1, passed_rows_ - 1};
}

}  // namespace maestro
