// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/parquet_rows.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <system_error>

#include "runtime/core/library_places.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/dataset/parquet/interface.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr const char* library_name = "libmaestro_parquet.so";
constexpr std::size_t error_bytes = 1024;

struct Module {
  const ParquetFunctions* functions = nullptr;
  std::string missing;
};

Module load(const fs::path& library) {
  // Arrow contains a copy of Thrift with the same names as this program's: with RTLD_DEEPBIND it calls that copy. The
  // library stays loaded until the end: Arrow has threads.
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (handle == nullptr) return {nullptr, std::string("it cannot be loaded: ") + dlerror()};
  const auto entry = reinterpret_cast<ParquetEntry>(dlsym(handle, parquet_entry_name));
  const ParquetFunctions* functions = entry == nullptr ? nullptr : entry();
  if (functions == nullptr || functions->version != parquet_interface_version) {
    return {nullptr, library.string() + " is not a Parquet module of this program"};
  }
  return {functions, ""};
}

Module find() {
  const char* named = std::getenv("MAESTRO_PARQUET_LIBRARY");
  if (named != nullptr && *named != 0) return load(named);
  std::error_code failed;
  for (const fs::path& place : library_places(library_name)) {
    if (fs::exists(place, failed)) return load(place);
  }
  return {nullptr, "this build lacks the module for it: pip install pyarrow, and build again"};
}

const Module& module() {
  static const Module found = find();
  return found;
}

}  // namespace

Status read_parquet(const fs::path& file, const RowSink& sink) {
  const std::string name = printable(file.string());
  if (module().functions == nullptr) {
    return Error{ErrorCode::unavailable,
                 name + " is a Parquet file, and " + module().missing + "; JSON Lines need no module"};
  }
  const ParquetFunctions& parquet = *module().functions;
  std::string error(error_bytes, '\0');
  const std::unique_ptr<void, void (*)(void*)> reader(parquet.open(file.c_str(), error.data(), error.size()),
                                                      parquet.close);
  if (!reader) return Error{ErrorCode::corrupt, "cannot read " + name + ": " + printable(error.c_str())};
  ParquetRow row;
  for (;;) {
    const int status = parquet.next(reader.get(), &row, error.data(), error.size());
    if (status == 0) return {};
    if (status < 0) {
      return Error{ErrorCode::corrupt,
                   "cannot read " + name + " after row " + std::to_string(row.row) + ": " + printable(error.c_str())};
    }
    sink({file.string() + ": row group " + std::to_string(row.row_group) + ", row " + std::to_string(row.row),
          std::string(row.json, row.bytes), true, false});
  }
}

}  // namespace maestro
