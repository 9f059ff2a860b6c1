// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/image_table.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "runtime/dataset/image_store.hpp"
#include "runtime/dataset/row_image.hpp"
#include "runtime/dataset/shard_writer.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro::image_table {
namespace {

namespace fs = std::filesystem;

/// Writes tensors to a file, and returns their table or the error.
Result<ImageTable> table_of(const TempFolder& folder, std::vector<NamedTensor> tensors, std::uint64_t documents,
                            std::optional<SafetensorsFile>& file) {
  const fs::path path = folder.path() / "t.safetensors";
  (void)write_safetensors(path, std::move(tensors)).value_or_throw();
  file.emplace(SafetensorsFile::open(path).value_or_throw());
  return ImageTable::read(*file, documents);
}

ImageTableWriter three_images() {
  ImageTableWriter writer;
  writer.add({10, {4, 3}, 2, 1, 12, 4}, {0, 0, "a.png"});
  writer.add({11, {5, 3}, 2, 1, 15, 5}, {1, 512, "b.png"});
  writer.end_document();
  writer.end_document();
  writer.add({12, {6, 3}, 1, 1, 18, 6}, {2, 7, ""});
  writer.end_document();
  return writer;
}

TEST(ImageTable, images_are_read_as_written) {
  const TempFolder folder;
  std::optional<SafetensorsFile> file;
  const ImageTableWriter writer = three_images();
  const ImageTable table = table_of(folder, writer.tensors(), 3, file).value_or_throw();
  EXPECT_EQ(table.images(), 3U);
  EXPECT_EQ(table.first(1), 2U);
  EXPECT_EQ(table.first(2), 2U);
  EXPECT_EQ(table.first(3), 3U);
  EXPECT_EQ(table.image(1).size, (ImageSize{5, 3}));
  EXPECT_EQ(table.image(1).in_sample, 2);
  EXPECT_EQ(table.image(2).visual_rows, 6);
  EXPECT_EQ(table.place(1).name, "b.png");
  EXPECT_EQ(table.place(1).position, 512);
  EXPECT_EQ(table.place(2).name, "");
  EXPECT_EQ(table.place(2).container, 2);
}

TEST(ImageTable, tensors_that_do_not_fit_each_other_are_refused) {
  const TempFolder folder;
  std::optional<SafetensorsFile> file;
  const ImageTableWriter writer = three_images();
  EXPECT_FALSE(table_of(folder, writer.tensors(), 2, file));
  for (std::size_t left_out = 1; left_out < 5; ++left_out) {
    std::vector<NamedTensor> tensors = writer.tensors();
    tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(left_out));
    EXPECT_FALSE(table_of(folder, std::move(tensors), 3, file)) << left_out;
  }
  ImageTableWriter empty = three_images();
  empty.add({0, {1, 1}, 1, 1, 1, 1}, {0, 0, ""});  // a file without bytes
  EXPECT_FALSE(table_of(folder, empty.tensors(), 3, file));
  const std::vector<std::int64_t> none{0};
  EXPECT_EQ(
      table_of(folder, {{"other", ConstTensor(none.data(), DType::i64, Shape{1})}}, 3, file).value_or_throw().images(),
      0U);
}

TEST(ImageStore, embedded_images_fill_shards_in_order) {
  const TempFolder folder;
  ImageStore store(folder.path(), 5);
  const auto embedded = [&](const std::string& content) {
    RowImage image;
    image.content = content;
    return store.place(image, "images", "rows.parquet").value_or_throw();
  };
  RowImage file;
  file.name = "x.png";
  const ImagePlace first = embedded("abc"), named = store.place(file, "images", "rows.json").value_or_throw();
  const ImagePlace second = embedded("def"), third = embedded("g");
  EXPECT_EQ(second.container, first.container);
  EXPECT_EQ(second.position, 3);
  EXPECT_EQ(third.position, 0);
  EXPECT_EQ(named.name, "x.png");
  PreparedImages images;
  images.containers = store.finish().value_or_throw();
  ASSERT_EQ(images.containers.size(), 3U);
  EXPECT_EQ(images.containers[1].path, fs::absolute("images").string());
  EXPECT_EQ(read_prepared_image(folder.path(), images, second, 3).value_or_throw(), "def");
  EXPECT_EQ(read_prepared_image(folder.path(), images, third, 1).value_or_throw(), "g");
  EXPECT_EQ(read_prepared_image(folder.path(), images, third, 2).error().code, ErrorCode::corrupt);
}

TEST(RowImage, base64_is_decoded_as_the_rfc_says) {
  const std::pair<const char*, const char*> texts[] = {{"", ""},         {"Zg==", "f"},        {"Zm8=", "fo"},
                                                       {"Zm9v", "foo"},  {"Zm9vYg==", "foob"}, {"Zm9vYg", "foob"},
                                                       {"Zm\n9v", "foo"}};
  for (const auto& [text, bytes] : texts) EXPECT_EQ(decode_base64(text).value_or_throw(), bytes) << text;
  EXPECT_EQ(decode_base64("Zm9v-").error().message, "byte 4 is not base64");
  EXPECT_EQ(decode_base64("Zg==Zg").error().message, "byte 4 is not base64");
  EXPECT_EQ(decode_base64("Zm9vY").error().message, "the base64 text ends inside of a byte");
}

}  // namespace
}  // namespace maestro::image_table
