// SPDX-License-Identifier: Apache-2.0
// Shared by the fuzz targets: files for parsers that read files, and checks that end the program, which libFuzzer and
// the replay report as a finding.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"

/// Entry point for libFuzzer, defined once by each target.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace maestro::fuzz {

/// Maximum bytes in an error message: some values of `longest_shown` and a path of keys.
inline constexpr std::size_t longest_refusal = 4096;

[[nodiscard]] inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Ends the program unless `holds`.
inline void require(bool holds, std::string_view rule, std::string_view found = {}) {
  if (holds) return;
  std::cerr << "broken rule: " << rule << ": " << found << std::endl;
  std::abort();
}

inline void check_refusal(std::string_view line) {
  require(!line.empty(), "a refusal has a text");
  require(line.size() <= longest_refusal, "a refusal is of bounded length", line);
  require(printable(line, line.size()) == line, "a refusal is one line of UTF-8 without control characters", line);
}

/// Returns whether the call ends without JobError. Checks the error's text.
template <class Call>
bool accepts(Call&& call) {
  try {
    std::forward<Call>(call)();
    return true;
  } catch (const JobError& error) {
    check_refusal(error.what());
    return false;
  }
}

/// Returns whether a Result or Status is good. Checks the error's text.
template <class Answer>
bool accepted(const Answer& answer) {
  if (!answer.ok()) check_refusal(answer.error().message);
  return answer.ok();
}

/// A folder in the system's temporary folder, removed at the end of the program.
class ScratchFolder {
 public:
  ScratchFolder() : path_(std::filesystem::temp_directory_path() / ("maestro-fuzz-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Writes a file, replacing earlier content, and returns its path.
  std::filesystem::path write(std::string_view name, std::string_view bytes) const {
    std::filesystem::path file = path_ / name;
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    require(out.flush().good(), "the folder for temporary files can be written", file.string());
    return file;
  }

 private:
  std::filesystem::path path_;
};

/// Returns the program's folder, created at the first call.
inline const ScratchFolder& scratch() {
  static const ScratchFolder folder;
  return folder;
}

}  // namespace maestro::fuzz
