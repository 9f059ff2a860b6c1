// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/prepare_once.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>

#include "runtime/core/input_file.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/dataset/image_model.hpp"
#include "runtime/dataset/row_files.hpp"
#include "runtime/files/atomic_file.hpp"
#include "runtime/model/hf_tokenizer.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr const char* request_file = "request.txt";

/// A lock between processes on this host, held until destruction.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& file)
      : file_(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {  // NOLINT: open is variadic
    if (!file_) throw JobError(system_error("cannot open", file, errno));
    while (::flock(file_.get(), LOCK_EX) != 0) {
      if (errno != EINTR) throw JobError(system_error("cannot lock", file, errno));
    }
  }

 private:
  FileDescriptor file_;
};

void add_file(std::string& text, const fs::path& file) {
  std::error_code ignored;
  const auto changed = fs::last_write_time(file, ignored).time_since_epoch();
  text += fs::absolute(file).lexically_normal().string() + " " + std::to_string(fs::file_size(file, ignored)) + " " +
          std::to_string(std::chrono::duration_cast<std::chrono::nanoseconds>(changed).count()) + "\n";
}

/// Returns everything that the data depend on, as text.
std::string request_of(const PrepareOptions& options) {
  std::string text = "version 1\ntokenizer " + options.tokenizer + "\nfield " + options.text_column + "\ntemplate " +
                     options.chat_template + "\nend of turn " + options.end_of_turn + "\nlearn " +
                     std::to_string(static_cast<int>(options.learned)) + "\nexpected " +
                     std::to_string(static_cast<int>(options.expected)) + "\nvalidation " +
                     number_text(options.validation_fraction) + "\nbad " + std::to_string(options.max_bad) +
                     "\nas text " + std::to_string(static_cast<int>(options.as_text)) + "\nbegin of text " +
                     std::to_string(static_cast<int>(options.begin_of_text)) + "\n";
  if (!options.processor.empty()) {
    text += "processor " + options.processor.string() + "\nimages " + options.images.string() + "\nresample " +
            std::to_string(static_cast<int>(options.resample_order)) + "\n";
    for (const std::string& name : image_model_files(options.processor)) add_file(text, options.processor / name);
  }
  if (const auto& scaled = options.scaled) {
    text += "patch " + std::to_string(scaled->patch) + "\nimage_size " + std::to_string(scaled->image_size) +
            "\nmax_image_size " + std::to_string(scaled->max_image_size) + "\nimages " + options.images.string() + "\n";
  }
  if (!options.validation.empty()) {
    text += "validation rows\n";
    for (const fs::path& file : row_files({options.validation})) add_file(text, file);
  }
  // Without a date, the day of the preparation does not count: a run that continues tomorrow uses today's data.
  if (!options.date.empty()) text += "date " + options.date + "\n";
  for (const fs::path& file : row_files(options.inputs)) add_file(text, file);
  std::error_code ignored;
  for (const std::string& file : {options.chat_template, options.tokenizer}) {
    if (fs::is_regular_file(file, ignored)) add_file(text, file);
  }
  if (fs::is_directory(options.tokenizer, ignored)) {
    for (const char* name : {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "chat_template.jinja",
                             "generation_config.json"}) {
      if (fs::exists(fs::path(options.tokenizer) / name, ignored)) add_file(text, fs::path(options.tokenizer) / name);
    }
  }
  return text;
}

}  // namespace

fs::path prepare_once(const PrepareOptions& options, const fs::path& folder,
                      const std::function<void(const std::string&)>& note) {
  const std::string request = request_of(options);
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) throw JobError(system_error("cannot make", folder, failure.value()));
  const FolderLock lock(folder / ".lock");
  fs::path prepared = folder / "prepared";
  if (fs::exists(prepared / prepared_index_file, failure)) {
    const Result<std::string> stored = read_text(prepared / request_file);
    if (stored && *stored == request) return prepared;
  }
  fs::remove_all(prepared, failure);
  PrepareCalls calls;
  calls.warn = [&](const std::string& line) {
    if (note) note(line);
  };
  const PreparedIndex index = prepare_data(options, prepared, calls);
  (void)write_file(prepared / request_file, request).value_or_throw();
  const auto rows = index.counts.find("rows");
  if (note) {
    note("prepared " + std::to_string(rows == index.counts.end() ? 0 : rows->second) + " rows in " +
         printable(prepared.string()) + " (maestro data shows them)");
  }
  return prepared;
}

}  // namespace maestro
