// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/partial_folder.hpp"

#include <string>
#include <system_error>
#include <utility>

#include "runtime/core/input_file.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/dataset/prepared_data.hpp"

namespace maestro {

namespace fs = std::filesystem;

PartialFolder::PartialFolder(fs::path target) : target_(std::move(target)) {
  std::error_code ignored;
  if (fs::exists(target_, ignored) && !(fs::is_directory(target_, ignored) && fs::is_empty(target_, ignored))) {
    const bool prepared = fs::exists(target_ / prepared_index_file, ignored);
    throw JobError(printable(target_.string()) +
                   (prepared ? " holds prepared data already" : " exists and is not empty") +
                   "; remove it, or name another folder");
  }
  const fs::path whole = fs::absolute(target_).lexically_normal();
  const fs::path named = whole.has_filename() ? whole : whole.parent_path();
  partial_ = named.parent_path() / ("." + named.filename().string() + ".partial");
  fs::remove_all(partial_, ignored);
  std::error_code failure;
  fs::create_directories(partial_, failure);
  if (failure) throw JobError(system_error("cannot make", partial_, failure.value()));
}

PartialFolder::~PartialFolder() {
  std::error_code ignored;
  if (!partial_.empty()) fs::remove_all(partial_, ignored);
}

void PartialFolder::commit() {
  std::error_code failure;
  fs::remove(target_, failure);  // an existing target is empty
  fs::rename(partial_, target_, failure);
  if (failure) throw JobError(system_error("cannot make", target_, failure.value()));
  partial_.clear();
}

}  // namespace maestro
