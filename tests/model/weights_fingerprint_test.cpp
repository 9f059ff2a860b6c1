// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/weights_fingerprint.hpp"

#include <gtest/gtest.h>

#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

std::string fingerprint_of(const std::filesystem::path& folder) {
  return weights_fingerprint(folder).value_or_throw();
}

TEST(WeightsFingerprint, is_that_of_the_files_wherever_they_are) {
  const TempFolder folder;
  for (const char* place : {"a", "b/c"}) {
    folder.write(std::string(place) + "/model.safetensors", "weights");
    folder.write(std::string(place) + "/config.json", place);
  }
  EXPECT_EQ(fingerprint_of(folder.path() / "a"), fingerprint_of(folder.path() / "b/c"));
}

TEST(WeightsFingerprint, differs_with_content_name_number_and_size_of_the_files) {
  const TempFolder folder;
  const auto one = [&](const char* name, const std::string& content) {
    const auto path = folder.write(name, content).parent_path();
    return fingerprint_of(path);
  };
  const std::string plain = one("a/model.safetensors", "weights");
  EXPECT_NE(plain, one("b/model.safetensors", "Weights"));
  EXPECT_NE(plain, one("c/model-1.safetensors", "weights"));
  EXPECT_NE(plain, one("d/model.safetensors", "weight"));
  folder.write("e/model.safetensors", "weights");
  EXPECT_NE(plain, one("e/more.safetensors", ""));
}

TEST(WeightsFingerprint, of_a_large_file_sees_its_header_and_a_change_all_over_it) {
  const TempFolder folder;
  std::string content(std::size_t{8} << 20, 'w');
  const auto at = folder.write("large/model.safetensors", content).parent_path();
  const std::string before = fingerprint_of(at);
  content[70'000] = 'x';
  folder.write("large/model.safetensors", content);
  EXPECT_NE(fingerprint_of(at), before);
  content[70'000] = 'w';
  for (std::size_t byte = std::size_t{1} << 20; byte < content.size(); byte += 16) content[byte] = 'x';
  folder.write("large/model.safetensors", content);
  EXPECT_NE(fingerprint_of(at), before);
}

TEST(WeightsFingerprint, of_a_large_file_sees_a_change_in_its_last_sampled_piece_alone) {
  const TempFolder folder;
  std::string content(std::size_t{8} << 20, 'w');
  const auto at = folder.write("large/model.safetensors", content).parent_path();
  const std::string before = fingerprint_of(at);
  content[content.size() - 256] = 'x';  // evenly spread samples end fewer than 256 bytes before the end of the file
  folder.write("large/model.safetensors", content);
  EXPECT_NE(fingerprint_of(at), before);
}

TEST(WeightsFingerprint, of_a_file_of_up_to_two_mebibytes_sees_every_byte) {
  const TempFolder folder;
  std::string content(std::size_t{3} << 19, 'w');
  const auto at = folder.write("small/model.safetensors", content).parent_path();
  const std::string before = fingerprint_of(at);
  for (const std::size_t byte : {std::size_t{0}, std::size_t{1} << 20, content.size() - 4097, content.size() - 1}) {
    content[byte] = 'x';
    folder.write("small/model.safetensors", content);
    EXPECT_NE(fingerprint_of(at), before) << byte;
    content[byte] = 'w';
  }
}

TEST(WeightsFingerprint, of_a_folder_that_is_missing_names_it) {
  EXPECT_NE(weights_fingerprint("/nowhere/at/all").error().message.find("/nowhere/at/all"), std::string::npos);
}

}  // namespace
}  // namespace maestro
