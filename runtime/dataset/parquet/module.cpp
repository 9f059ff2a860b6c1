// SPDX-License-Identifier: Apache-2.0
// The module libmaestro_parquet.so: reads rows of Parquet files by the libraries in pyarrow's wheel.
#include <arrow/api.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/dataset/parquet/interface.hpp"

namespace maestro {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t batch_rows = 256;

void put_error(const std::string& text, char* error, std::size_t error_bytes) {
  std::string line = text.substr(0, text.find('\n'));
  (void)std::snprintf(error, error_bytes, "%s", line.c_str());
}

ordered_json json_of(const arrow::Array& array, std::int64_t at);

/// Returns whether values are numbers. Lists of them become a word, so that a row with an embedding stays small.
bool is_number(const arrow::DataType& type) {
  return arrow::is_integer(type.id()) || arrow::is_floating(type.id());
}

template <class List>
ordered_json list_of(const List& list, std::int64_t at) {
  const std::int64_t begin = list.value_offset(at);
  const std::int64_t length = list.value_length(at);
  if (is_number(*list.values()->type())) return length == 0 ? ordered_json::array() : ordered_json("(numbers)");
  ordered_json made = ordered_json::array();
  for (std::int64_t element = begin; element < begin + length; ++element) {
    made.push_back(json_of(*list.values(), element));
  }
  return made;
}

ordered_json mapping_of(const arrow::StructArray& values, std::int64_t at) {
  ordered_json made = ordered_json::object();
  for (int field = 0; field < values.num_fields(); ++field) {
    made[values.struct_type()->field(field)->name()] = json_of(*values.field(field), at);
  }
  return made;
}

template <class Array>
std::string text_of(const arrow::Array& array, std::int64_t at) {
  return std::string(static_cast<const Array&>(array).GetView(at));
}

ordered_json json_of(const arrow::Array& array, std::int64_t at) {
  if (array.IsNull(at)) return nullptr;
  switch (array.type_id()) {
    case arrow::Type::STRING:
      return text_of<arrow::StringArray>(array, at);
    case arrow::Type::LARGE_STRING:
      return text_of<arrow::LargeStringArray>(array, at);
    case arrow::Type::STRING_VIEW:
      return text_of<arrow::StringViewArray>(array, at);
    case arrow::Type::BOOL:
      return static_cast<const arrow::BooleanArray&>(array).Value(at);
    case arrow::Type::INT32:
      return static_cast<const arrow::Int32Array&>(array).Value(at);
    case arrow::Type::INT64:
      return static_cast<const arrow::Int64Array&>(array).Value(at);
    case arrow::Type::DOUBLE:
      return static_cast<const arrow::DoubleArray&>(array).Value(at);
    case arrow::Type::BINARY:
    case arrow::Type::LARGE_BINARY:
      return "(binary)";
    case arrow::Type::LIST:
      return list_of(static_cast<const arrow::ListArray&>(array), at);
    case arrow::Type::LARGE_LIST:
      return list_of(static_cast<const arrow::LargeListArray&>(array), at);
    case arrow::Type::STRUCT:
      return mapping_of(static_cast<const arrow::StructArray&>(array), at);
    case arrow::Type::DICTIONARY: {
      const auto& values = static_cast<const arrow::DictionaryArray&>(array);
      return json_of(*values.dictionary(), values.GetValueIndex(at));
    }
    default: {
      const auto scalar = array.GetScalar(at);
      return scalar.ok() ? (*scalar)->ToString() : scalar.status().ToString();
    }
  }
}

class Reader {
 public:
  static std::unique_ptr<Reader> open(const std::string& path) {
    parquet::arrow::FileReaderBuilder builder;
    require(builder.OpenFile(path));
    auto made = std::make_unique<Reader>();
    require(builder.Build(&made->file_));
    made->file_->set_batch_size(batch_rows);
    auto batches = made->file_->GetRecordBatchReader();
    require(batches.status());
    made->batches_ = std::move(batches).ValueUnsafe();
    const auto metadata = made->file_->parquet_reader()->metadata();
    std::int64_t end = 0;
    for (int group = 0; group < metadata->num_row_groups(); ++group) {
      made->group_ends_.push_back(end += metadata->RowGroup(group)->num_rows());
    }
    return made;
  }

  bool next(ParquetRow& row) {
    while (!batch_ || at_ == batch_->num_rows()) {
      require(batches_->ReadNext(&batch_));
      if (!batch_) return false;
      at_ = 0;
    }
    ordered_json value = ordered_json::object();
    for (int column = 0; column < batch_->num_columns(); ++column) {
      value[batch_->column_name(column)] = json_of(*batch_->column(column), at_);
    }
    text_ = value.dump(-1, ' ', false, ordered_json::error_handler_t::strict);
    row.json = text_.data();
    row.bytes = text_.size();
    row.row = row_++;
    row.row_group = std::ranges::upper_bound(group_ends_, row.row) - group_ends_.begin();
    ++at_;
    return true;
  }

 private:
  static void require(const arrow::Status& status) {
    if (!status.ok()) throw std::runtime_error(status.message());
  }

  std::unique_ptr<parquet::arrow::FileReader> file_;
  std::shared_ptr<arrow::RecordBatchReader> batches_;
  std::vector<std::int64_t> group_ends_;  // rows
  std::shared_ptr<arrow::RecordBatch> batch_;
  std::int64_t at_ = 0;   // row in the batch
  std::int64_t row_ = 0;  // row in the file
  std::string text_;
};

void* open_reader(const char* path, char* error, std::size_t error_bytes) {
  try {
    return Reader::open(path).release();
  } catch (const std::exception& problem) {
    put_error(problem.what(), error, error_bytes);
    return nullptr;
  }
}

int next_row(void* reader, ParquetRow* row, char* error, std::size_t error_bytes) {
  try {
    return static_cast<Reader*>(reader)->next(*row) ? 1 : 0;
  } catch (const std::exception& problem) {
    put_error(problem.what(), error, error_bytes);
    return -1;
  }
}

void close_reader(void* reader) {
  delete static_cast<Reader*>(reader);  // NOLINT(cppcoreguidelines-owning-memory): made by open_reader
}

}  // namespace

extern "C" [[gnu::visibility("default")]] const ParquetFunctions* maestro_parquet_entry() {
  static const ParquetFunctions functions{parquet_interface_version, open_reader, next_row, close_reader};
  return &functions;
}

}  // namespace maestro
